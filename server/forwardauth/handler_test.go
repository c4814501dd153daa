package forwardauth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/policy"
)

const problem = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The assigned quota is exceeded","status":429,"detail":"Rule \"client\" admits 1 per 1h; the request fits in 1h0m0s.","violated-policies":["client"],"retry_after_ms":3600000}`

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		parameters string
		dialect    httplimit.Dialect
		status     int
		headers    string
	}{
		{"", httplimit.XRateLimit, 429, `
X-Ratelimit-Limit: 1
X-Ratelimit-Remaining: 0
X-Ratelimit-Reset: 3600`},
		{"denied=429", httplimit.NoHeaders, 429, ``},
		{"denied=403", httplimit.NoHeaders, 403, `
Headgate-Problem: ` + problem},
		{"denied=401", httplimit.Draft11, 401, `
Headgate-Problem: ` + problem + `
Ratelimit-Policy: "client";q=1;w=3600
Ratelimit: "client";r=0;t=3600`},
	} {
		a := newAsked(t, []policy.Rule{rule(perHour("client", 1), "ip")})
		h := New(a, Options{Dialect: tt.dialect})
		if w := ask(h, tt.parameters); w.Code != 200 || w.Body.Len() != 0 {
			t.Errorf("%q: the first is answered with %d %s", tt.parameters, w.Code, w.Body)
		}
		w := ask(h, tt.parameters)
		want := strings.Split("Cache-Control: no-store\nContent-Type: application/problem+json\nRetry-After: 3600\nX-Content-Type-Options: nosniff"+tt.headers, "\n")
		slices.Sort(want)
		if w.Code != tt.status || w.Body.String() != problem+"\n" || lines(w.Header()) != strings.Join(want, "\n") {
			t.Errorf("%q: %d %s\n%s\nwant %d\n%s", tt.parameters, w.Code, w.Body, lines(w.Header()), tt.status, strings.Join(want, "\n"))
		}
		if w := ask(h, tt.parameters, "X-Forwarded-For", "203.0.113.8"); w.Code != 200 {
			t.Errorf("%q: another client is answered with %d", tt.parameters, w.Code)
		}
	}
}

// What the headers say, as the parameters have them read, becomes the descriptor.
func TestDescriptor(t *testing.T) {
	t.Parallel()
	const usual = "route=GET /items/{id} method=GET host=example.com path=/items/7"
	for _, tt := range []struct {
		name, parameters string
		header           []string
		want             string
	}{
		{"plain", "", nil, "ip=203.0.113.7 " + usual},
		{"an API key", "", []string{"Authorization", "Bearer k1"}, "api_key=k1 ip=203.0.113.7 " + usual},
		{"behind another word", "key=Authorization:Token,X-Api-Key", []string{"Authorization", "token k1"}, "api_key=k1 ip=203.0.113.7 " + usual},
		{"behind any word", "key=Authorization:*", []string{"Authorization", "k1"}, "api_key=k1 ip=203.0.113.7 " + usual},
		{"overrides that are ignored", "paths=ignored_overrides", []string{"X-Forwarded-Uri", "/items/7?_method=PUT", "X-Http-Method", "PUT"}, "ip=203.0.113.7 " + usual},
		{"its header", "key=X-Key,x-other", []string{"Authorization", "Bearer k1", "X-Other", "k2"}, "api_key=k2 ip=203.0.113.7 " + usual},
		{"what the client wrote", "", []string{"X-Forwarded-For", "8.8.8.8, 203.0.113.9"}, "ip=203.0.113.9 " + usual},
		{"further proxies", "trust=10.0.0.0/8,192.0.2.1", []string{"X-Forwarded-For", "8.8.8.8, 203.0.113.9, 192.0.2.1", "X-Forwarded-For", "10.1.1.1"}, "ip=203.0.113.9 " + usual},
		{"Forwarded", "ip=forwarded", []string{"Forwarded", `for="[2001:db8::1]:99"`}, "ip=2001:db8::1 " + usual},
		{"one address", "ip=x-real-ip", []string{"X-Real-IP", "203.0.113.5"}, "ip=203.0.113.5 " + usual},
		{"no address", "", []string{"X-Forwarded-For", ""}, usual},
		{"not an address", "", []string{"X-Forwarded-For", "unknown"}, usual},
		{"another host", "", []string{"X-Forwarded-Host", "API.Example.com:8443"}, "ip=203.0.113.7 route=GET /items/{id} method=GET host=api.example.com path=/items/7"},
		{"no host", "", []string{"X-Forwarded-Host", ""}, "ip=203.0.113.7 route=GET /items/{id} method=GET path=/items/7"},
		{"no host wanted", "host=", nil, "ip=203.0.113.7 route=GET /items/{id} method=GET path=/items/7"},
		{
			"other headers", "method=x-original-method&uri=X-Original-URI&host=X-Original-Host",
			[]string{"X-Original-Method", "POST", "X-Original-URI", "/token?x=1", "X-Original-Host", "a.b"},
			"ip=203.0.113.7 route=POST /token method=POST host=a.b path=/token",
		},
		{"a whole URL", "uri=X-Original-URL", []string{"X-Original-URL", "https://example.com/items/a%20b?x=1"}, "ip=203.0.113.7 route=GET /items/{id} method=GET host=example.com path=/items/a b"},
		{"an unclean path", "", []string{"X-Forwarded-Uri", "/%69tems//7"}, "ip=203.0.113.7 route=GET /items/{id} method=GET host=example.com path=/items/7"},
		{"HEAD", "", []string{"X-Forwarded-Method", "HEAD"}, "ip=203.0.113.7 route=GET /items/{id} method=HEAD host=example.com path=/items/7"},
		{"a beginning", "", []string{"X-Forwarded-Uri", "/v1/a/b"}, "ip=203.0.113.7 route=GET /v1/ method=GET host=example.com path=/v1/a/b"},
		{"no route", "", []string{"X-Forwarded-Uri", "/else/7"}, "ip=203.0.113.7 route=unmatched method=GET host=example.com path=/else/7"},
		{"a route of the proxy's own", "route=search", []string{"X-Forwarded-Uri", "/else/7"}, "ip=203.0.113.7 route=search method=GET host=example.com path=/else/7"},
		{"more entries", "entry=user:X-Auth-User&entry=tenant:X-Tenant&entry=none:X-None", []string{"X-Auth-User", " ann ", "X-Tenant", "t"}, "ip=203.0.113.7 " + usual + " user=ann tenant=t"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			items := rule(perHour("items", 9), "ip")
			items.Match = []policy.Condition{policy.Equal("route", "GET /items/{id}", "POST /token")}
			below := rule(perHour("below", 9), "ip")
			below.Match = []policy.Condition{policy.Prefix("route", "GET /v1/")}
			a := newAsked(t, []policy.Rule{items, below})
			if w := ask(New(a, Options{}), tt.parameters, tt.header...); w.Code != 200 || a.descriptor() != tt.want {
				t.Errorf("%d %s\n%s\nwant\n%s", w.Code, w.Body, a.descriptor(), tt.want)
			}
		})
	}
}

// A proxy that asks in the wrong way gets 500 whatever the request is, and the
// log has the reason, once.
func TestMisconfigured(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		parameters string
		header     []string
		want       []string
	}{
		{"", []string{"X-Forwarded-Method", "", "X-Forwarded-Uri", ""}, []string{"X-Forwarded-Method is missing", "X-Forwarded-Uri is missing"}},
		{"uri=x-original-uri", nil, []string{"X-Original-Uri is missing"}},
		{"", []string{"X-Forwarded-Uri", "/a", "X-Forwarded-Uri", "/b"}, []string{"X-Forwarded-Uri is there 2 times"}},
		{"", []string{"X-Forwarded-Host", "a", "X-Forwarded-Host", "b"}, []string{"X-Forwarded-Host is there 2 times"}},
		{"denied=404&cost=0&cost=1&entry=x&entry=ip:X&entry=a:X&entry=a:Y&method=&uri=a+b&route=&key=,&what=1", nil, []string{
			`"denied" is "404"`, `"cost" is given 2 times`, `"cost" is "0"`, `"entry" is "x"`, `"entry" is "ip:X": every request has`, `"entry" gives the entry a twice`,
			`"method" is empty`, `"uri" is "a b"`, `"route" has 0 bytes`, `"key" is wrong: "" is not the name of a header`, `"what" is not a parameter; the parameters are cost, denied, entry, host, ip, key, lines, max_delay, method, paths, route, trust, uri`,
		}},
		{"trust=10.0.0.1/8,x,0.0.0.0/0", nil, []string{`"trust" is wrong`, "10.0.0.1/8", `"x"`, "every address"}},
		{"a;b", nil, []string{"cannot be read"}},
		{"route=" + strings.Repeat("x", 5000), nil, []string{"the parameters have 5006 bytes, may have 4096"}},
		{strings.Repeat("entry=a:X&", 20) + "cost=1", nil, []string{"entry a twice"}},
		{"key=" + strings.Repeat("x,", 16) + "x", nil, []string{`"key" names 17 headers, may name 16`}},
	} {
		var log bytes.Buffer
		a := newAsked(t, []policy.Rule{rule(perHour("client", 1), "ip")})
		h := New(a, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 3 {
			w := ask(h, tt.parameters, tt.header...)
			if w.Code != 500 || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%q: %d %s", tt.parameters, w.Code, w.Body)
			}
			for _, want := range tt.want {
				if !strings.Contains(strings.ReplaceAll(w.Body.String(), `\"`, `"`), want) {
					t.Errorf("%q: %s\nlacks %q", tt.parameters, w.Body, want)
				}
			}
		}
		if n := strings.Count(log.String(), "not configured for forward auth"); n != 1 || len(a.ops) != 0 {
			t.Errorf("%q: logged %d times, and the store was asked %d times:\n%s", tt.parameters, n, len(a.ops), log.String())
		}
	}
}

// What clients do wrong is refused with a status that every proxy passes on.
func TestRefusals(t *testing.T) {
	t.Parallel()
	deny := policy.Denied(policy.ListEntry{Name: "scanners", Match: []policy.Condition{policy.Prefix("path", "/wp-")}})
	items := rule(perHour("items", 9), "api_key")
	items.Match = []policy.Condition{policy.Equal("route", "GET /items/{id}")}
	for _, tt := range []struct {
		name   string
		header []string
		code   int // if a denial is told as 429
		says   string
	}{
		{"the deny list", []string{"X-Forwarded-Uri", "/wp-login.php"}, 403, "not allowed"},
		{"the deny list, spelled otherwise", []string{"X-Forwarded-Uri", "/%77p-login.php"}, 403, "not allowed"},
		{"the deny list, by a detour", []string{"X-Forwarded-Uri", "/x/../wp-login.php"}, 400, "Byte 4 of the path begins a segment"},
		{"the deny list, encoded twice", []string{"X-Forwarded-Uri", "/%2577p-login.php"}, 400, "two ways"},
		{"no URI", []string{"X-Forwarded-Uri", "items"}, 400, "no valid URI"},
		{"a URI with a control character", []string{"X-Forwarded-Uri", "/a\x7fb"}, 400, "a control character"},
		{"a whole URL without a path", []string{"X-Forwarded-Uri", "http:items/7"}, 400, "no valid URI"},
		{"a whole URL with two slashes", []string{"X-Forwarded-Uri", "http://evil//x/items/7"}, 400, "a second slash"},
		{"a fragment", []string{"X-Forwarded-Uri", "/items/7#x?y"}, 400, "Byte 9"},
		{"a path of two meanings", []string{"X-Forwarded-Uri", "/items%2f7"}, 400, "two ways"},
		{"a path that ends in C", []string{"X-Forwarded-Uri", "/items/7%00/x"}, 400, "two ways"},
		{"a method in small letters", []string{"X-Forwarded-Method", "get", "X-Forwarded-Uri", "/items/7"}, 400, "two ways"},
		{"two API keys", []string{"X-Api-Key", "a", "X-Api-Key", "b"}, 400, "X-Api-Key is there 2 times"},
		{"two API keys in one line", []string{"Authorization", "Bearer k 1", "X-Api-Key", "k"}, 400, "more than one word"},
		{"an API key behind a tab", []string{"Authorization", "Bearer\tk", "X-Api-Key", "k"}, 400, "two ways"},
		{"a header that is a key to some servers", []string{"X_Api_Key", "k"}, 400, "X_api_key is the same as X-Api-Key"},
		{"another one", []string{"X.Api~Key", "k"}, 400, "is the same as X-Api-Key"},
		{"a host with two ports", []string{"X-Forwarded-Host", "example.com:80:80"}, 400, "Its host is not"},
		{"a host with a port of letters", []string{"X-Forwarded-Host", "example.com:abc"}, 400, "Its host is not"},
		{"a WebSocket over HTTP/2", []string{"X-Forwarded-Method", "CONNECT"}, 400, "as a GET"},
		{"another method by a header", []string{"X-Http-Method-Override", "GET"}, 400, "another method than its own, by X-Http-Method-Override"},
		{"another method by the query", []string{"X-Forwarded-Uri", "/items/7?a=b&_method=GET"}, 400, "another method than its own, by its query"},
		{"an API key that is too long", []string{"X-Api-Key", strings.Repeat("k", policy.MaxValue+1)}, 431, "api_key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := newAsked(t, []policy.Rule{items}, deny)
			h := New(a, Options{})
			w := ask(h, "", tt.header...)
			if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.says) || w.Header().Get(ProblemHeader) != "" {
				t.Errorf("%d %s\n%s", w.Code, w.Body, lines(w.Header()))
			}
			w = ask(h, "denied=401", tt.header...)
			if w.Code != 403 || w.Header().Get(ProblemHeader)+"\n" != w.Body.String() || !strings.Contains(w.Body.String(), fmt.Sprintf(`"status":%d`, tt.code)) {
				t.Errorf("denied=401: %d %s\n%s", w.Code, w.Body, lines(w.Header()))
			}
		})
	}
}

// An entry that stands in two lines could be another one for the application.
func TestEntryInTwoLines(t *testing.T) {
	t.Parallel()
	a := newAsked(t, []policy.Rule{rule(perHour("user", 9), "user")})
	w := ask(New(a, Options{}), "entry=user:X-Auth-User", "X-Auth-User", "ann", "X-Auth-User", "berta")
	if w.Code != 400 || !strings.Contains(w.Body.String(), "X-Auth-User is there 2 times") || len(a.ops) != 0 {
		t.Errorf("%d %s, the store was asked %d times", w.Code, w.Body, len(a.ops))
	}
}

// Requests without an address pass by the rules that need one; the operator is told,
// once.
func TestWithoutAnAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		per  string
		want int
	}{{"ip", 1}, {"method", 0}} {
		var log bytes.Buffer
		h := New(newAsked(t, []policy.Rule{rule(perHour("all", 9), tt.per)}), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 3 {
			if w := ask(h, "", "X-Forwarded-For", "unknown"); w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if n := strings.Count(log.String(), "does not send the client's address"); n != tt.want || n > 0 && !strings.Contains(log.String(), "header=X-Forwarded-For") {
			t.Errorf("per %s: logged %d times:\n%s", tt.per, n, log.String())
		}
	}
}

// A path longer than any entry may be is no obstacle where no rule looks at it.
func TestLongPath(t *testing.T) {
	t.Parallel()
	a := newAsked(t, []policy.Rule{rule(perHour("client", 9), "ip")})
	if w := ask(New(a, Options{}), "", "X-Forwarded-Uri", "/"+strings.Repeat("a", policy.MaxValue)); w.Code != 200 || strings.Contains(a.descriptor(), "path=") {
		t.Errorf("%d %s: %.100s", w.Code, w.Body, a.descriptor())
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	h := New(newAsked(t, []policy.Rule{rule(perHour("client", 10), "ip")}), Options{})
	for i, tt := range []struct {
		parameters string
		code       int
		left       string
		retry      bool
	}{{"cost=7", 200, "3", false}, {"cost=4", 429, "3", true}, {"", 200, "2", false}, {"cost=11", 429, "2", false}} {
		w := ask(h, tt.parameters)
		if w.Code != tt.code || w.Header().Get("X-RateLimit-Remaining") != tt.left || (w.Header().Get("Retry-After") != "") != tt.retry {
			t.Errorf("request %d: %d\n%s", i+1, w.Code, lines(w.Header()))
		}
	}
}

func TestStoreErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, parameters string
		err              error
		canceled         bool
		code             int
		retry            string
	}{
		{"the store does not answer", "", headgate.ErrUnavailable, false, 503, "5"},
		{"denials told as 401", "denied=401", headgate.ErrUnavailable, false, 503, "5"},
		{"the proxy has gone", "", headgate.ErrUnavailable, true, httplimit.StatusClientGone, ""},
		{"a request that cannot be counted", "", &headgate.InvalidError{Subject: "request", Problems: headgate.Problems{{Text: "too much"}}}, false, 400, ""},
		{"the same, denials told as 403", "denied=403", &headgate.InvalidError{Subject: "request", Problems: headgate.Problems{{Text: "too much"}}}, false, 403, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := newAsked(t, []policy.Rule{rule(perHour("client", 1), "ip")})
			a.err = fmt.Errorf("take: %w", tt.err)
			r := httptest.NewRequest(http.MethodGet, Path+"/"+tt.parameters, http.NoBody)
			r.Header.Set("X-Forwarded-Method", "GET")
			r.Header.Set("X-Forwarded-Uri", "/")
			r.Header.Set("X-Forwarded-For", "203.0.113.7")
			if tt.canceled {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				r = r.WithContext(ctx)
			}
			w := httptest.NewRecorder()
			New(a, Options{}).ServeHTTP(w, r)
			if w.Code != tt.code || w.Header().Get("Retry-After") != tt.retry {
				t.Errorf("%d %s\n%s", w.Code, w.Body, lines(w.Header()))
			}
		})
	}
}

// A leaky bucket holds the answer; too long a delay is a denial, and what it took
// is given back, as it is when the proxy goes away.
func TestDelay(t *testing.T) {
	t.Parallel()
	slow := headgate.MustRule("paced", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Hour, Burst: 4})
	a := newAsked(t, []policy.Rule{rule(slow, "ip")})
	h := New(a, Options{})
	for i, code := range []int{200, 429, 429} {
		if w := ask(h, ""); w.Code != code {
			t.Errorf("request %d: %d, want %d", i+1, w.Code, code)
		}
	}
	if want := []headgate.Op{headgate.OpTake, headgate.OpTake, headgate.OpRefund, headgate.OpTake, headgate.OpRefund}; !slices.Equal(a.ops, want) {
		t.Errorf("the store was asked for %v, want %v", a.ops, want)
	}

	quick := headgate.MustRule("paced", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1000, Period: time.Second, Burst: 4})
	a = newAsked(t, []policy.Rule{rule(quick, "ip")})
	h = New(a, Options{})
	for i, code := range []int{200, 200, 200, 200, 429} {
		if w := ask(h, ""); w.Code != code {
			t.Errorf("quick request %d: %d, want %d", i+1, w.Code, code)
		}
	}
}

// TestDelayIsBounded: an answer is never held for longer than the proxy waits, because a proxy that
// gives up may let the request through, and nothing would have been charged.
func TestDelayIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, terms string
		headers     []string
		delay       time.Duration // of the second request
		want        int
		held        time.Duration
	}{
		{name: "the default", delay: 400 * time.Millisecond, want: 200, held: 400 * time.Millisecond},
		{name: "beyond the default", delay: 600 * time.Millisecond, want: 429},
		{name: "as long as the proxy allows", terms: "max_delay=5s", delay: 4 * time.Second, want: 200, held: 4 * time.Second},
		{name: "not as long", terms: "max_delay=50ms", delay: 400 * time.Millisecond, want: 429},
		{name: "Envoy's timeout", headers: []string{Timeout, "200"}, delay: 100 * time.Millisecond, want: 200, held: 100 * time.Millisecond},
		{name: "beyond Envoy's timeout", headers: []string{Timeout, "200"}, delay: 180 * time.Millisecond, want: 429},
		{name: "beyond it, whatever max_delay says", terms: "max_delay=5s", headers: []string{Timeout, "200"}, delay: 400 * time.Millisecond, want: 429},
		{name: "a long timeout does not lengthen it", headers: []string{Timeout, "100000"}, delay: 600 * time.Millisecond, want: 429},
		{name: "nonsense", headers: []string{Timeout, "-1"}, delay: 400 * time.Millisecond, want: 200, held: 400 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubbletest.Test(t, func(t *testing.T) {
				paced := headgate.MustRule("paced", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: tt.delay, Burst: 4})
				a := newAsked(t, []policy.Rule{rule(paced, "ip")})
				h := New(a, Options{})
				if w := ask(h, tt.terms, tt.headers...); w.Code != 200 {
					t.Fatalf("the first request: %d", w.Code)
				}
				began := time.Now()
				w := ask(h, tt.terms, tt.headers...)
				if held := time.Since(began); w.Code != tt.want || held != tt.held {
					t.Errorf("%d after %v, want %d after %v", w.Code, held, tt.want, tt.held)
				}
				if tt.want != 429 {
					return
				}
				if w.Header().Get("Retry-After") != "1" {
					t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
				}
				if want := []headgate.Op{headgate.OpTake, headgate.OpTake, headgate.OpRefund}; !slices.Equal(a.ops, want) {
					t.Errorf("the store was asked for %v, want %v", a.ops, want)
				}
			})
		})
	}
}

// A new policy is what the next request is decided by, its routes included.
func TestPolicyChanges(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	first := rule(perHour("first", 9))
	first.Match = []policy.Condition{policy.Equal("route", "GET /items/{id}")}
	second := rule(perHour("second", 9))
	second.Match = []policy.Condition{policy.Equal("route", "GET /{kind}/7")}
	broken := rule(perHour("broken", 9))
	broken.Match = []policy.Condition{policy.Equal("route", "GET /{", "GET /items/{id}")}
	a := newAsked(t, []policy.Rule{first})
	h := New(a, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for i, tt := range []struct {
		rule  policy.Rule
		route string
	}{{first, "GET /items/{id}"}, {second, "GET /{kind}/7"}, {broken, "GET /items/{id}"}} {
		a.Rules = newAsked(t, []policy.Rule{tt.rule}).Rules
		if w := ask(h, ""); w.Code != 200 || !strings.Contains(a.descriptor(), "route="+tt.route+" ") {
			t.Errorf("policy %d: %d, %s", i+1, w.Code, a.descriptor())
		}
	}
	// Each of the three policies has rules for routes and does not say what is behind.
	for text, want := range map[string]int{"GET /{": 1, "nothing says which server is behind": 3, "level=WARN": 4} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("the log has %q %d times, want %d:\n%s", text, n, want, log.String())
		}
	}
}

// A caller with new parameters for each request fills no memory.
func TestParametersAreBounded(t *testing.T) {
	t.Parallel()
	a := newAsked(t, []policy.Rule{rule(headgate.MustRule("all", headgate.PerHour(10*maxKnown)))})
	h := New(a, Options{})
	for i := range 2 * maxKnown {
		if w := ask(h, fmt.Sprintf("route=r%d", i)); w.Code != 200 {
			t.Fatalf("text %d: %d", i, w.Code)
		}
	}
	n := 0
	h.terms.terms.Range(func(any, any) bool { n++; return true })
	if n != maxKnown {
		t.Errorf("%d texts are remembered, want %d", n, maxKnown)
	}
}

func TestProblemHeader(t *testing.T) {
	t.Parallel()
	p := httplimit.Problem{Title: "größe 🙂\n", Status: 429, ViolatedPolicies: []string{"a"}}
	if got, want := inHeader(p), `{"title":"gr\u00f6\u00dfe \ud83d\ude42\n","status":429,"violated-policies":["a"]}`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	p.ViolatedPolicies = slices.Repeat([]string{"a rule with a name"}, 200)
	if got := inHeader(p); len(got) > maxProblem || !strings.Contains(got, `"status":429}`) {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// FuzzAsk has no request cause a panic, or an answer that no proxy understands.
func FuzzAsk(f *testing.F) {
	f.Add("denied=401&trust=10.0.0.0/8", "GET", "/items/7?x", "example.com", "1.1.1.1, 10.0.0.1")
	f.Add("entry=a:B&cost=3&host=", "PROPFIND", "http://h/%2e%2e/a;b\\c", "[::1]:80", "unknown")
	items := rule(perHour("items", 1_000_000_000), "ip", "host")
	items.Match = []policy.Condition{policy.Equal("route", "GET /items/{id}", "GET example.com/{x...}")}
	f.Fuzz(func(t *testing.T, parameters, method, uri, host, ip string) {
		h := New(newAsked(t, []policy.Rule{items}), Options{})
		r := &http.Request{Method: http.MethodGet, URL: httptest.NewRequest(http.MethodGet, Path, http.NoBody).URL, Header: http.Header{
			"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {uri}, "X-Forwarded-Host": {host}, "X-Forwarded-For": {ip},
		}}
		r.URL.Path, r.URL.RawPath = Path+"/"+parameters, ""
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !slices.Contains([]int{200, 400, 401, 403, 429, 431, 500}, w.Code) {
			t.Errorf("answered with %d %s", w.Code, w.Body)
		}
	})
}

// Bounds on what is in progress are left out, since a question ends before the request does, and
// the proxy is told their rules, whether the request may pass or not.
func TestUnenforced(t *testing.T) {
	t.Parallel()
	bounded := func(name string, limits *headgate.Rule) policy.Rule {
		return policy.Rule{Name: name, Limits: limits, Per: []policy.Part{{Entry: "ip"}}, InProgress: &policy.InProgress{Limit: 1}}
	}
	h := New(newAsked(t, []policy.Rule{bounded("reports", nil), bounded("a,b", perHour("a,b", 1))}), Options{Dialect: httplimit.NoHeaders})
	for _, status := range []int{200, 429} {
		if w := ask(h, ""); w.Code != status || w.Header().Get("Headgate-Unenforced") != "reports, a%2Cb" {
			t.Errorf("got %d\n%s", w.Code, lines(w.Header()))
		}
	}
}
