package httplimittest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

// Cases about what the client gets to see.

func answers(t *testing.T, mk Maker) {
	for _, tt := range []struct {
		dialect         httplimit.Dialect
		allowed, denied string
	}{
		{
			httplimit.XRateLimit, `
X-Ratelimit-Limit: 2
X-Ratelimit-Remaining: 1
X-Ratelimit-Reset: 60`, `
Cache-Control: no-store
Retry-After: 60
X-Content-Type-Options: nosniff
X-Ratelimit-Limit: 2
X-Ratelimit-Remaining: 0
X-Ratelimit-Reset: 60`,
		},
		{
			httplimit.RateLimitTriple, `
Ratelimit-Limit: 2
Ratelimit-Remaining: 1
Ratelimit-Reset: 60`, `
Cache-Control: no-store
Ratelimit-Limit: 2
Ratelimit-Remaining: 0
Ratelimit-Reset: 60
Retry-After: 60
X-Content-Type-Options: nosniff`,
		},
		{
			httplimit.Draft11, `
Ratelimit-Policy: "client per 1m";q=2;w=60, "client per 1h";q=20;w=3600
Ratelimit: "client per 1m";r=1;t=60, "client per 1h";r=19;t=3600`, `
Cache-Control: no-store
Ratelimit-Policy: "client per 1m";q=2;w=60, "client per 1h";q=20;w=3600
Ratelimit: "client per 1m";r=0;t=60, "client per 1h";r=18;t=3600
Retry-After: 60
X-Content-Type-Options: nosniff`,
		},
		{httplimit.NoHeaders, ``, `
Cache-Control: no-store
Retry-After: 60
X-Content-Type-Options: nosniff`},
	} {
		t.Run(tt.dialect.String(), func(t *testing.T) {
			s := newSubject(t, mk, httplimit.Headers(tt.dialect), trusted,
				httplimit.Limit(httplimit.ByIP(), headgate.MustRule("client", headgate.Sliding(2, time.Minute), headgate.Sliding(20, time.Hour))))
			if a := s.get(); a.status != http.StatusOK || a.body != "item 7" || a.lines() != strings.TrimPrefix(tt.allowed, "\n") {
				t.Errorf("admitted: %d %q\n%s\nwant%s", a.status, a.body, a.lines(), tt.allowed)
			}
			s.get()
			a := s.get()
			if a.status != http.StatusTooManyRequests || a.lines() != strings.TrimPrefix(tt.denied, "\n") {
				t.Errorf("denied: %d\n%s\nwant%s", a.status, a.lines(), tt.denied)
			}
			var p httplimit.Problem
			if err := json.Unmarshal([]byte(a.body), &p); err != nil {
				t.Fatalf("%v in %q", err, a.body)
			}
			if a.header.Get("Content-Type") != "application/problem+json" || p.Type != httplimit.TypeQuotaExceeded || p.Status != http.StatusTooManyRequests ||
				p.RetryAfterMS != 60_000 || !slices.Equal(p.ViolatedPolicies, []string{"client per 1m"}) {
				t.Errorf("%s: %+v", a.header.Get("Content-Type"), p)
			}
			s.clock.Advance(time.Minute - time.Microsecond)
			s.want([]int{429})
			s.clock.Advance(time.Microsecond)
			s.want([]int{200, 200, 429})
		})
	}
}

func denialStops(t *testing.T, mk Maker) {
	s := newSubject(t, mk, trusted, httplimit.Limit(httplimit.ByIP(), one("client")))
	s.want([]int{200, 429, 429})
	if a := s.ask(http.MethodPost, "/echo", strings.Repeat("x", 64<<10)); a.status != http.StatusTooManyRequests {
		t.Errorf("a request with a body: %d", a.status)
	}
	if got := s.site.served.Load(); got != 1 {
		t.Errorf("the handlers served %d requests, want 1", got)
	}
}

func headHasNoBody(t *testing.T, mk Maker) {
	s := newSubject(t, mk, trusted, httplimit.Limit(httplimit.ByIP(), one("client")))
	s.want([]int{200})
	a := s.ask(http.MethodHead, "/items/7", "")
	if a.status != http.StatusTooManyRequests || a.body != "" || a.header.Get("Retry-After") != "3600" || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %q\n%s", a.status, a.body, a.lines())
	}
	s.want([]int{429}) // the connection is still in step
}

func ownAnswer(t *testing.T, mk Maker) {
	s := newSubject(t, mk, trusted, httplimit.Limit(httplimit.ByIP(), one("client")), httplimit.OnDenied(
		func(w http.ResponseWriter, r *http.Request, v headgate.Verdict) {
			w.Header().Add("X-Own", "one")
			w.Header().Add("X-Own", "two")
			w.Header().Del("X-Ratelimit-Reset")
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprintf(w, "%s %s ", r.Method, r.URL.Path)
			_, _ = io.WriteString(w, "denied by "+v.Deciding().Rule.Name())
		}))
	s.want([]int{200})
	a := s.get()
	if a.status != http.StatusTeapot || a.body != "GET /items/7 denied by client" || a.header.Get("Retry-After") != "3600" ||
		!slices.Equal(a.header["X-Own"], []string{"one", "two"}) || a.header["X-Ratelimit-Reset"] != nil || a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%d %q\n%v", a.status, a.body, a.header)
	}
}

func costs(t *testing.T, mk Maker) {
	s := newSubject(t, mk, trusted, httplimit.Limit(httplimit.ByIP(), headgate.MustRule("client", headgate.PerHour(10))),
		httplimit.Cost(func(r *http.Request) (n int64) {
			_, _ = fmt.Sscan(r.Header.Get("Cost"), &n)
			return n
		}))
	for i, tt := range []struct {
		cost  string
		code  int
		left  string
		retry bool
	}{
		{"4", 200, "6", false},
		{"7", 429, "6", true},
		{"0", 200, "", false},
		{"6", 200, "0", false},
		{"11", 429, "0", false}, // it never fits
		{"-1", 500, "", false},
		{"9007199254740992", 500, "", false},
	} {
		a := s.get("Cost", tt.cost)
		if a.status != tt.code || a.header.Get("X-RateLimit-Remaining") != tt.left || (a.header.Get("Retry-After") != "") != tt.retry {
			t.Errorf("request %d: %d\n%s", i+1, a.status, a.lines())
		}
	}
}

func lists(t *testing.T, mk Maker) {
	set, err := policy.New([]policy.Rule{{Limits: one("client"), Per: []policy.Part{{Entry: "ip", Bits6: 64}}}},
		policy.Denied(policy.ListEntry{Name: "bad", Match: []policy.Condition{policy.Equal("x-kind", "bad")}}),
		policy.Allowed(policy.ListEntry{Name: "good", Match: []policy.Condition{policy.Equal("x-kind", "good")}}))
	if err != nil {
		t.Fatal(err)
	}
	s := newSubject(t, mk, trusted, httplimit.Policy(set),
		httplimit.Fact("x-kind", func(r *http.Request) string { return r.Header.Get("X-Kind") }))
	s.want([]int{200, 429})
	s.want([]int{403, 403}, "X-Kind", "bad")
	s.want([]int{200, 200}, "X-Kind", "good")
}

func allOrNothing(t *testing.T, mk Maker) {
	s := newSubject(t, mk, trusted,
		httplimit.Limit(httplimit.ByIP(), one("client")),
		httplimit.Limit(httplimit.Everyone(), headgate.MustRule("all", headgate.PerHour(2))))
	s.want([]int{200, 429, 429}, "X-Forwarded-For", "203.0.113.7")
	s.want([]int{200, 429}, "X-Forwarded-For", "203.0.113.8")
	s.want([]int{429}, "X-Forwarded-For", "203.0.113.9")
}
