package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
)

// clock is a store's clock that stands still until it is moved.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.micros.Store(time.Date(2015, 5, 17, 10, 0, 0, 0, time.UTC).UnixMicro())
	return c
}

func (c *clock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }
func (c *clock) store() *memory.Store    { return memory.New(memory.Clock(c.micros.Load)) }

// storeFunc is a store made of a function.
type storeFunc func(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error)

func (f storeFunc) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return f(ctx, op, checks, dst)
}

func mustNew(t testing.TB, store headgate.Store, opts ...Option) http.Handler {
	t.Helper()
	m, err := New(store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return m(hello)
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

// ask sends a request from an address, with headers given as name, value pairs.
func ask(h http.Handler, remote string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/v1/items", nil)
	r.RemoteAddr = remote
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func one(name string) *headgate.Rule { return headgate.MustRule(name, headgate.PerHour(1)) }

func TestDeniedAndAllowed(t *testing.T) {
	t.Parallel()
	c := newClock()
	var denied int
	h := mustNew(t, c.store(),
		Limit(ByIP(), headgate.MustRule("client", headgate.Sliding(2, time.Minute))),
		Observe(Hooks{Denied: func(_ *http.Request, v headgate.Verdict) {
			if v.Allowed || len(v.Decisions) != 1 {
				t.Errorf("hook got %+v", v)
			}
			denied++
		}}))
	for i, tt := range []struct {
		wait time.Duration
		code int
		left string
	}{
		{0, 200, "1"},
		{time.Second, 200, "0"},
		{58999 * time.Millisecond, 429, "0"},
		{time.Millisecond, 200, "0"},
	} {
		c.advance(tt.wait)
		w := ask(h, "203.0.113.7:1")
		if w.Code != tt.code || w.Header().Get("X-RateLimit-Remaining") != tt.left {
			t.Errorf("request %d: %d, %s left; want %d, %s", i+1, w.Code, w.Header().Get("X-RateLimit-Remaining"), tt.code, tt.left)
		}
		if tt.code == 429 {
			var p Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.RetryAfterMS != 1 || !slices.Equal(p.ViolatedPolicies, []string{"client"}) {
				t.Errorf("request %d: problem %+v, %v", i+1, p, err)
			}
		} else if w.Body.String() != "hello" {
			t.Errorf("request %d: body %q", i+1, w.Body)
		}
	}
	if denied != 1 {
		t.Errorf("%d denials were told, want 1", denied)
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	var failed error
	cost := func(r *http.Request) (n int64) {
		_, _ = fmt.Sscan(r.Header.Get("Cost"), &n)
		return n
	}
	h := mustNew(t, newClock().store(), Limit(ByIP(), headgate.MustRule("rule", headgate.PerHour(10))), Cost(cost),
		Observe(Hooks{Failed: func(_ *http.Request, err error) { failed = err }}))
	for i, tt := range []struct {
		cost string
		code int
		left string
		err  bool
	}{
		{"4", 200, "6", false},
		{"7", 429, "6", false},
		{"0", 200, "", false},
		{"6", 200, "0", false},
		{"11", 429, "0", false},
		{"-1", 500, "", true},
		{"9007199254740992", 500, "", true},
	} {
		failed = nil
		w := ask(h, "1.1.1.1:1", "Cost", tt.cost)
		if w.Code != tt.code || w.Header().Get("X-RateLimit-Remaining") != tt.left || (failed != nil) != tt.err {
			t.Errorf("request %d: %d, %q left, error %v", i+1, w.Code, w.Header().Get("X-RateLimit-Remaining"), failed)
		}
		if tt.cost == "11" && w.Header().Get("Retry-After") != "" {
			t.Error("a cost that never fits has a Retry-After")
		}
	}
}

func TestStoreErrors(t *testing.T) {
	t.Parallel()
	down := storeFunc(func(ctx context.Context, _ headgate.Op, _ []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
		if err := ctx.Err(); err != nil {
			return dst, fmt.Errorf("%w: %w", headgate.ErrUnavailable, err)
		}
		return dst, headgate.ErrUnavailable
	})
	invalid := storeFunc(func(_ context.Context, _ headgate.Op, _ []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
		return dst, &headgate.InvalidError{Subject: "request", Problems: headgate.Problems{{Text: "too much"}}}
	})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancelLate()
	for _, tt := range []struct {
		name   string
		store  headgate.Store
		ctx    context.Context
		opts   []Option
		code   int
		retry  string
		note   string
		failed int
	}{
		{"open", down, t.Context(), nil, 200, "", "", 1},
		{"open with a note", down, t.Context(), []Option{UnenforcedHeader("x-unenforced")}, 200, "", "store-unavailable", 1},
		{"closed", down, t.Context(), []Option{OnStoreError(FailClosed)}, 503, "5", "", 1},
		{"a mistake is never let in", invalid, t.Context(), nil, 500, "", "", 1},
		{"hanging up is no way in", down, canceled, nil, StatusClientGone, "", "", 0},
		{"a deadline is no way in", down, late, nil, 503, "5", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			failed := 0
			h := mustNew(t, tt.store, append(tt.opts, Limit(ByIP(), one("rule")), Observe(Hooks{Failed: func(*http.Request, error) { failed++ }}))...)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(tt.ctx))
			if w.Code != tt.code || w.Header().Get("Retry-After") != tt.retry || w.Header().Get("X-Unenforced") != tt.note || failed != tt.failed {
				t.Errorf("%d, %d errors, headers\n%s", w.Code, failed, lines(w.Header()))
			}
			if (w.Body.String() == "hello") != (tt.code == 200) {
				t.Errorf("body %q", w.Body)
			}
		})
	}
}

func TestOnDenied(t *testing.T) {
	t.Parallel()
	h := mustNew(t, newClock().store(), Limit(ByIP(), one("rule")), OnDenied(func(w http.ResponseWriter, _ *http.Request, v headgate.Verdict) {
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "denied by %s", v.Deciding().Rule.Name())
	}))
	ask(h, "1.1.1.1:1")
	w := ask(h, "1.1.1.1:1")
	if w.Code != http.StatusTeapot || w.Body.String() != "denied by rule" || w.Header().Get("Retry-After") != "3600" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %q\n%s", w.Code, w.Body, lines(w.Header()))
	}
}

// The writer reaches the handler as it is, so that no interface of it is lost.
func TestWriterIsNotWrapped(t *testing.T) {
	t.Parallel()
	m, err := New(newClock().store(), Limit(ByIP(), one("rule")))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	m(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
		if got != http.ResponseWriter(w) {
			t.Errorf("the handler got a %T", got)
		}
	})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
}

func TestMistakesAtOnce(t *testing.T) {
	t.Parallel()
	rule := one("rule")
	set, err := policy.New([]policy.Rule{{Limits: one("mine"), Per: []policy.Part{{Entry: "tier"}}}})
	if err != nil {
		t.Fatal(err)
	}
	tenant := func(*http.Request) string { return "" }
	_, err = New(nil,
		Limit(Key{}, rule), Limit(ByIP()), Limit(ByIP(), nil, rule), Limit(Combine(ByIP()), one("mine")), Limit(Combine(), one("c")),
		Limit(ByUser(nil), one("user")), Limit(ByHeader("X Y"), one("header")),
		Limit(ByFunc("tenant", tenant), one("t1")), Limit(ByFunc("tenant", tenant), one("t2")),
		Limit(Combine(ByIP(), ByIP()), one("twice")),
		Policy(nil), Policy(set), Policy(set),
		TrustProxies(XForwardedFor, "0.0.0.0/0"), IPv6Prefix(129), APIKeyHeaders(), APIKeyHeaders(""), HashKey([]byte("short")), HashKey(nil),
		Route(nil), Cost(nil), OnMissing(9), OnStoreError(9), UnenforcedHeader("a b"), Headers(9), MaxDelay(-1), OnDenied(nil), Describe(nil))
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("New: %v", err)
	}
	for _, want := range []string{
		"the store is nil", "Limit 1 has an empty Key", "Limit 2 has no rule", "Limit 3 has a nil rule", `Limit 3: the rule "rule" is there already`,
		`Limit 4: the rule "mine" is there already`, "Limit 5 has an empty Key", `entry "user" needs a function`, `"x y"`, `entry "tenant" is found in two ways`,
		`entry "ip" is already part 1`, "Policy: the set is nil", "Policy: a policy is given already", "every address", "IPv6Prefix is 129", "APIKeyHeaders needs", `APIKeyHeaders: ""`,
		"the hash key has 5 bytes", "HashKey is empty", "Route needs", "Cost needs", "OnMissing: choice 9", "OnStoreError: choice 9", `UnenforcedHeader: "a b"`,
		"dialect 9", "MaxDelay is -1ns", "OnDenied needs", "Describe needs",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among the mistakes", want)
		}
	}
	if t.Failed() {
		t.Logf("the mistakes:\n%s", strings.Join(invalid.Problems.Texts(), "\n"))
	}
	if _, err := New(newClock().store()); err == nil || !strings.Contains(err.Error(), "nothing is limited") {
		t.Errorf("without a limit: %v", err)
	}
	if _, err := New(newClock().store(), Policy(set)); err == nil || !strings.Contains(err.Error(), "the entries tier, which nothing finds") {
		t.Errorf("an entry that nothing finds: %v", err)
	}
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	const limit, callers, each = 500, 40, 50
	h := mustNew(t, newClock().store(), Limit(ByIP(), headgate.MustRule("rule", headgate.PerHour(limit))), Limit(ByHeader("X-Tenant"), headgate.MustRule("tenant", headgate.PerHour(each))))
	var admitted atomic.Int64
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for range each {
				if ask(h, "1.1.1.1:1", "X-Tenant", fmt.Sprint(i)).Code == 200 {
					admitted.Add(1)
				}
			}
		})
	}
	group.Wait()
	if admitted.Load() != limit {
		t.Errorf("%d admitted, want %d", admitted.Load(), limit)
	}
}
