package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
)

// get asks the handler and prints what it answers.
func get(h http.Handler, path, apiKey string) {
	r := httptest.NewRequest("GET", path, nil)
	if apiKey != "" {
		r.Header.Set("X-API-Key", apiKey)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, "remaining:", w.Header().Get("X-RateLimit-Remaining"))
}

func items(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "items") }

// Two limits: each API key may ask twice an hour, and all clients together three
// times.
func Example() {
	limit, err := httplimit.New(memory.New(),
		httplimit.Limit(httplimit.ByAPIKey(), headgate.MustRule("key", headgate.PerHour(2))),
		httplimit.Limit(httplimit.Everyone(), headgate.MustRule("all", headgate.PerHour(3))))
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items", items)
	h := limit(mux)

	get(h, "/items", "ann")
	get(h, "/items", "ann")
	get(h, "/items", "ann")
	get(h, "/items", "bob")
	get(h, "/items", "bob")
	get(h, "/items", "")
	// Output:
	// 200 remaining: 1
	// 200 remaining: 0
	// 429 remaining: 0
	// 200 remaining: 0
	// 429 remaining: 0
	// 401 remaining:
}

// A policy says which rules bind a request by the facts about it. The middleware
// stands around the whole mux, and asks it for the route.
func ExamplePolicy() {
	set, err := policy.New([]policy.Rule{
		{
			Limits: headgate.MustRule("search", headgate.Sliding(1, time.Minute)),
			Match:  []policy.Condition{policy.Equal("route", "GET /search")},
			Per:    []policy.Part{{Entry: "ip", Bits6: 64}},
		},
		{
			Limits: headgate.MustRule("client", headgate.PerHour(100)),
			Per:    []policy.Part{{Entry: "ip", Bits6: 64}},
		},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", items)
	mux.HandleFunc("GET /items/{id}", items)
	limit, err := httplimit.New(memory.New(), httplimit.Policy(set), httplimit.Route(httplimit.MuxRoute(mux)))
	if err != nil {
		panic(err)
	}
	h := limit(mux)

	get(h, "/search", "")
	get(h, "/search", "")
	get(h, "/items/7", "")
	// Output:
	// 200 remaining: 0
	// 429 remaining: 0
	// 200 remaining: 98
}

// Where a limit stands around single handlers, the pattern is the route.
func ExampleByRoute() {
	limit, err := httplimit.New(memory.New(),
		httplimit.Limit(httplimit.Combine(httplimit.ByIP(), httplimit.ByRoute()), headgate.MustRule("page", headgate.PerHour(1))))
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", limit(http.HandlerFunc(items)))
	mux.Handle("GET /search", limit(http.HandlerFunc(items)))

	get(mux, "/items/7", "")
	get(mux, "/items/8", "")
	get(mux, "/search", "")
	// Output:
	// 200 remaining: 0
	// 429 remaining: 0
	// 200 remaining: 0
}

// Every mistake in the options is reported at once.
func ExampleNew_mistakes() {
	_, err := httplimit.New(memory.New(),
		httplimit.Limit(httplimit.ByIP()),
		httplimit.TrustProxies(httplimit.XForwardedFor, "0.0.0.0/0"))
	fmt.Println(err)
	// Output:
	// headgate: middleware: trusted proxy "0.0.0.0/0" is every address: any client could forge its own; Limit 1 has no rule
}

func ExampleResolver() {
	res, err := httplimit.NewResolver(httplimit.XForwardedFor, "10.0.0.0/8")
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "198.51.100.99, 203.0.113.7, 10.0.0.2")
	client, _ := res.Client(r)
	fmt.Println(client)
	// Output: 203.0.113.7
}
