package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.URL.RequestURI()) }

func TestAdmitsAndDenies(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		w.Header().Set("X-RateLimit-Remaining", "77") // not the gateway's
		w.Header().Set("X-Own", "kept")
		hello(w, r)
	})
	g := serveGateway(t, decider(t, []policy.Rule{perKey(2)}), to(up.URL))
	c := client(t)
	a := get(t, c, g.url+"/a?b=%zz;c", "X-API-Key: k1")
	a.wants(t, 200, "X-RateLimit-Limit: 2", "X-RateLimit-Remaining: 1", "X-Own: kept", "Retry-After: ")
	if a.text != "hello /a?b=%zz;c" {
		t.Errorf("the upstream server saw %q", a.text)
	}
	get(t, c, g.url+"/", "Authorization: Bearer k1").wants(t, 200, "X-RateLimit-Remaining: 0")
	a = get(t, c, g.url+"/", "X-API-Key: k1")
	a.wants(t, 429, "X-RateLimit-Remaining: 0", "Retry-After: 1800", "Content-Type: application/problem+json", "Cache-Control: no-store")

	// The middleware gives the same answer.
	limit, err := httplimit.New(memory.New(memory.Clock(stopped)), httplimit.Policy(decider(t, []policy.Rule{perKey(2)}).Rules().Set))
	if err != nil {
		t.Fatal(err)
	}
	h := limit(http.HandlerFunc(hello))
	var w *httptest.ResponseRecorder
	for range 3 {
		w = httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-API-Key", "k1")
		h.ServeHTTP(w, r)
	}
	var ours, theirs map[string]any
	if json.Unmarshal([]byte(a.text), &ours) != nil || json.Unmarshal(w.Body.Bytes(), &theirs) != nil {
		t.Fatalf("no JSON: %s, %s", a.text, w.Body)
	}
	for _, body := range []map[string]any{ours, theirs} {
		delete(body, "detail") // has the very time in it
		delete(body, "retry_after_ms")
	}
	if fmt.Sprint(ours) != fmt.Sprint(theirs) {
		t.Errorf("the gateway answers %v, the middleware %v", ours, theirs)
	}
	a.Header.Del("Date")
	for _, header := range []http.Header{a.Header, w.Header()} {
		header.Del("Content-Length")
	}
	if fmt.Sprint(a.Header) != fmt.Sprint(w.Header()) {
		t.Errorf("the gateway's headers are %v, the middleware's %v", a.Header, w.Header())
	}

	get(t, c, g.url+"/", "X-API-Key: k2").wants(t, 200, "X-RateLimit-Remaining: 1")
	// No rule binds a request without a key.
	get(t, c, g.url+"/").wants(t, 200, "X-RateLimit-Remaining: 77")
	if n := reached.Load(); n != 4 {
		t.Errorf("%d requests reached the upstream server, want 4", n)
	}
}

func TestUpstreamsOwnHeadersOfLimits(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Remaining", "7")
		if r.URL.Path == "/denied" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	g := serveGateway(t, decider(t, []policy.Rule{perKey(9)}), to(up.URL))
	c := client(t)
	get(t, c, g.url+"/", "X-API-Key: k").wants(t, 200, "X-RateLimit-Remaining: 8")
	get(t, c, g.url+"/denied", "X-API-Key: k").wants(t, 429, "X-RateLimit-Remaining: 7", "X-RateLimit-Limit: ")
}

func TestDialect(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, hello).URL)
	o.Dialect = httplimit.Draft11
	g := serveGateway(t, decider(t, []policy.Rule{perKey(60)}), o)
	get(t, client(t), g.url+"/", "X-API-Key: k").wants(t, 200, `RateLimit-Policy: "per-key";q=60;w=3600`, `RateLimit: "per-key";r=59;t=60`, "X-RateLimit-Limit: ")
}

func TestLists(t *testing.T) {
	t.Parallel()
	d := decider(t, []policy.Rule{perKey(1)},
		policy.Denied(policy.ListEntry{Name: "stolen", Match: []policy.Condition{policy.Equal("api_key", "geheim")}}),
		policy.Allowed(policy.ListEntry{Name: "monitoring", Match: []policy.Condition{policy.Equal("path", "/health")}}))
	o := to(upstream(t, hello).URL)
	o.AccessLog = true
	g := serveGateway(t, d, o)
	c := client(t)
	a := get(t, c, g.url+"/", "X-API-Key: geheim")
	a.wants(t, 403, "Content-Type: application/problem+json")
	if want := `{"title":"The request is not allowed","status":403}` + "\n"; a.text != want {
		t.Errorf("a listed request is answered with %s, want %s", a.text, want)
	}
	for range 3 {
		get(t, c, g.url+"/health", "X-API-Key: k").wants(t, 200, "X-RateLimit-Limit: ")
	}
	eventually(t, "four lines in the log", func() bool { return strings.Count(g.log.String(), "msg=request") == 4 })
	for _, want := range []string{"status=403 verdict=listed list=stolen", "status=200 verdict=passed list=monitoring"} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, g.log)
		}
	}
	if strings.Contains(g.log.String(), "geheim") {
		t.Errorf("a secret is in the log:\n%s", g.log)
	}
}

func TestStoreDoesNotAnswer(t *testing.T) {
	t.Parallel()
	up := upstream(t, hello)
	d := decider(t, []policy.Rule{perKey(1)})
	d.Store = failing{}
	c := client(t)

	open := serveGateway(t, d, to(up.URL))
	get(t, c, open.url+"/", "X-API-Key: k").wants(t, 200, "X-RateLimit-Unenforced: store-unavailable", "X-RateLimit-Limit: ")

	o := to(up.URL)
	o.OnStoreError = httplimit.FailClosed
	closed := serveGateway(t, d, o)
	a := get(t, c, closed.url+"/", "X-API-Key: k")
	a.wants(t, 503, "Retry-After: 5", "Content-Type: application/problem+json")
	if !strings.Contains(a.text, httplimit.TypeReducedCapacity) {
		t.Errorf("the problem is %s", a.text)
	}
}

// A rule that denies while the store does not answer goes before the gateway's own
// choice.
func TestStoreDoesNotAnswerAndTheRuleDenies(t *testing.T) {
	t.Parallel()
	d := decider(t, []policy.Rule{perKey(1)})
	strict := &strict{d}
	g := serveGateway(t, strict, to(upstream(t, hello).URL))
	get(t, client(t), g.url+"/", "X-API-Key: k").wants(t, 503)
}

// strict has all checks deny while the store does not answer, which it never does.
type strict struct{ *decide.Over }

func (s *strict) Take(_ context.Context, ask *decide.Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	for i := range ask.Checks {
		ask.Checks[i].OnError = headgate.OnErrorDeny
	}
	return dst, headgate.ErrUnavailable
}

func TestRequestThatCannotBeCounted(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, hello).URL)
	o.Identity.Headers = map[string]string{"units": "X-Units"}
	rule := perKey(100)
	rule.Costs = &policy.Costs{Entry: "units", Per: 1}
	g := serveGateway(t, decider(t, []policy.Rule{rule}), o)
	c := client(t)
	get(t, c, g.url+"/", "X-API-Key: k", "X-Units: 7").wants(t, 200, "X-RateLimit-Remaining: 93")
	a := get(t, c, g.url+"/", "X-API-Key: k", "X-Units: many")
	a.wants(t, 400, "Content-Type: application/problem+json")
	if !strings.Contains(a.text, "must be a whole number") {
		t.Errorf("the problem is %s", a.text)
	}
}

func TestEntryThatIsTooLong(t *testing.T) {
	t.Parallel()
	g := serveGateway(t, decider(t, []policy.Rule{perKey(100)}), to(upstream(t, hello).URL))
	get(t, client(t), g.url+"/", "X-API-Key: "+strings.Repeat("k", policy.MaxValue+1)).wants(t, 431)
}

// A leaky bucket holds requests, gives back what those took that would be held for
// too long, and what those took whose client has gone.
func TestDelay(t *testing.T) {
	t.Parallel()
	rule := policy.Rule{Limits: headgate.MustRule("paced", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Hour, Burst: 3})}
	d := decider(t, []policy.Rule{rule})
	o := to(upstream(t, hello).URL)
	o.MaxDelay = 90 * time.Minute
	g := serveGateway(t, d, o)
	c := client(t)
	get(t, c, g.url+"/").wants(t, 200, "X-RateLimit-Remaining: 2")

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+"/", http.NoBody)
		if err == nil {
			_, err = c.Do(r)
		}
		ended <- err
	}()
	peek := func() int64 {
		checks := []headgate.Check{{Rule: rule.Limits}}
		decisions, err := d.Store.Take(t.Context(), headgate.OpPeek, checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		return decisions[0].Remaining
	}
	eventually(t, "the second request is held", func() bool { return peek() == 1 })
	// The third would be held for two hours.
	get(t, c, g.url+"/").wants(t, 429, "X-RateLimit-Remaining: 1", "Retry-After: 1800")
	cancel()
	if err := next(t, ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the held request ended with %v", err)
	}
	eventually(t, "the second request's unit is back", func() bool { return peek() == 2 })
}

func TestPolicyThatChanges(t *testing.T) {
	t.Parallel()
	var current atomic.Pointer[decide.Policy]
	put := func(version int64, rules ...policy.Rule) {
		set, err := policy.New(rules)
		if err != nil {
			t.Fatal(err)
		}
		current.Store(&decide.Policy{Set: set, Version: version})
	}
	byUser := policy.Rule{
		Match: []policy.Condition{policy.Equal("route", "GET /items/{id}")}, Per: []policy.Part{{Entry: "tenant"}},
		Limits: headgate.MustRule("items", headgate.PerHour(5)),
	}
	put(1, perKey(9))
	d := &decide.Over{Rules: func() decide.Policy { return *current.Load() }, Store: memory.New()}
	o := to(upstream(t, hello).URL)
	o.Identity.Headers = map[string]string{"tenant": "X-Tenant"}
	g := serveGateway(t, d, o)
	c := client(t)
	headers := []string{"X-API-Key: k", "X-Tenant: t"}
	get(t, c, g.url+"/items/7", headers...).wants(t, 200, "X-RateLimit-Limit: 9")
	put(2, byUser)
	get(t, c, g.url+"/items/7", headers...).wants(t, 200, "X-RateLimit-Limit: 5")
	get(t, c, g.url+"/other", headers...).wants(t, 200, "X-RateLimit-Limit: ")
	put(3)
	get(t, c, g.url+"/items/7", headers...).wants(t, 200, "X-RateLimit-Limit: ")
}

func TestMethodsThatAreNotPassedOn(t *testing.T) {
	t.Parallel()
	g := serveGateway(t, decider(t, nil), to(upstream(t, hello).URL))
	ask(t, client(t), http.MethodTrace, g.url+"/", nil).wants(t, 405)
	a, err := http.ReadResponse(raw(t, g.addr, "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, a.Body)
	if a.StatusCode != 405 {
		t.Errorf("CONNECT is answered with %s", a.Status)
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	g := serveGateway(t, panicking{decider(t, nil)}, to(upstream(t, hello).URL))
	get(t, client(t), g.url+"/").wants(t, 500, "Content-Type: application/problem+json")
	if !strings.Contains(g.log.String(), "a request caused a panic") || !strings.Contains(g.log.String(), "no luck") {
		t.Errorf("the log is %s", g.log)
	}
	eventually(t, "nothing is in flight", func() bool { return g.counts.inFlight.Load() == 0 })
}

type panicking struct{ *decide.Over }

func (panicking) Take(context.Context, *decide.Ask, []headgate.Decision) ([]headgate.Decision, error) {
	panic("no luck")
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, hello).URL)
	o.AccessLog = true
	g := serveGateway(t, decider(t, []policy.Rule{perKey(1)}), o)
	c := client(t)
	ask(t, c, http.MethodPost, g.url+"/x?token=geheim", strings.NewReader("12345"), "X-API-Key: geheim", "Cookie: geheim").wants(t, 200)
	get(t, c, g.url+"/x?token=geheim", "X-API-Key: geheim").wants(t, 429)
	eventually(t, "two lines in the log", func() bool { return strings.Count(g.log.String(), "msg=request") == 2 })
	for _, want := range []string{
		"method=POST", "path=/x", "protocol=HTTP/1.1", "route=unmatched", "from=127.0.0.1", "status=200 verdict=passed rule=per-key limit=\"1 per 1h\" remaining=0",
		"received=5", "upstream=http://127.0.0.1:", "status=429 verdict=denied",
	} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, g.log)
		}
	}
	if strings.Contains(g.log.String(), "geheim") {
		t.Errorf("a secret is in the log:\n%s", g.log)
	}
}
