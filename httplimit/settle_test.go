package httplimit_test

import (
	"context"
	"errors"
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
	"github.com/headgate/headgate/store/memory"
)

// left is how many units of the rule remain for everyone.
func left(t *testing.T, store headgate.Store, rule *headgate.Rule) int64 {
	t.Helper()
	d, err := store.Take(context.Background(), headgate.OpPeek, []headgate.Check{{Rule: rule}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d[0].Remaining
}

// TestOutcomes: however a handler ends, its status is seen.
func TestOutcomes(t *testing.T) {
	rule := headgate.MustRule("r", headgate.Sliding(100, time.Hour))
	set, err := policy.New([]policy.Rule{{Limits: rule, GiveBackOn: policy.Statuses{{First: 304, Last: 304}, {First: 500, Last: 599}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		charged int64
	}{
		"nothing written": {func(http.ResponseWriter, *http.Request) {}, 1},
		"a body":          {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }, 1},
		"a file":          {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("x")) }, 1},
		"not modified":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, 0},
		"an error":        {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusBadGateway) }, 0},
		"hints before":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(503) }, 0},
		"a second status": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); w.WriteHeader(503) }, 1},
		"a panic":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0},
		"a flush":         {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(503) }, 1},
		"a controlled flush": {func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 1},
		"a panic too late": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(http.ErrAbortHandler) }, 1},
	} {
		store := memory.New()
		limit, err := httplimit.New(store, httplimit.Policy(set))
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			limit(c.handler).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}()
		if got := 100 - left(t, store, rule); got != c.charged {
			t.Errorf("%s: %d units stay charged, want %d", name, got, c.charged)
		}
	}
}

// TestOutcomeOfUncounted: what nobody has counted while the store was away is not given
// back to it once it answers again.
func TestOutcomeOfUncounted(t *testing.T) {
	rule := headgate.MustRule("r", headgate.Sliding(100, time.Hour))
	set, err := policy.New([]policy.Rule{{Limits: rule, GiveBackOn: policy.Statuses{{First: 500, Last: 599}}}})
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New()
	if _, err := headgate.New(store, rule).AllowN(t.Context(), "", 60); err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.New(away{store}, httplimit.Policy(set))
	if err != nil {
		t.Fatal(err)
	}
	limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	if got := left(t, store, rule); got != 40 {
		t.Errorf("%d units remain, want 40", got)
	}
}

// away lets requests in without counting them, and carries out everything else.
type away struct{ headgate.Store }

func (a away) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if op != headgate.OpTake {
		return a.Store.Take(ctx, op, checks, dst)
	}
	for i, c := range checks {
		limits := c.Rule.Limits()
		dst = append(dst, headgate.Decision{Rule: c.Rule, Limit: &limits[0], Check: i, Allowed: true, Source: headgate.SourceOpen, Remaining: limits[0].Capacity()})
	}
	return dst, nil
}

// TestSettledWriter: behind a writer that notes how a request ends, handlers can do
// with the connection what they can do without.
func TestSettledWriter(t *testing.T) {
	ended := make(chan int, 1)
	limit, err := httplimit.New(memory.New(), httplimit.Limit(httplimit.Everyone(), headgate.MustRule("all", headgate.PerSecond(100))),
		httplimit.Settle(func(_ *http.Request, end httplimit.Response) int64 {
			ended <- end.Status
			return 1
		}))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}), c.EnableFullDuplex()); err != nil {
			t.Errorf("the controller: %v", err)
		}
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
		if err := rw.Flush(); err != nil {
			t.Errorf("to the connection: %v", err)
		}
	})))
	res, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	server.Close()
	if status := <-ended; res.StatusCode != 101 || status != 101 {
		t.Errorf("answered with %d, ended with %d", res.StatusCode, status)
	}

	// What a writer cannot do is said.
	limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if _, _, err := c.Hijack(); !errors.Is(err, http.ErrNotSupported) || !errors.Is(c.Flush(), http.ErrNotSupported) {
			t.Errorf("Hijack: %v, Flush: %v", err, c.Flush())
		}
		w.WriteHeader(http.StatusTeapot)
	})).ServeHTTP(struct{ http.ResponseWriter }{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil))
	if status := <-ended; status != http.StatusTeapot {
		t.Errorf("ended with %d", status)
	}
}

// TestSettleByHandler: the handler says what the request has cost, flushes, and is
// cut off; a rule of the policy gives back what failed.
func TestSettleByHandler(t *testing.T) {
	rule := headgate.MustRule("tokens", headgate.Sliding(100, time.Hour))
	set, err := policy.New([]policy.Rule{{Limits: rule, GiveBackOn: policy.Statuses{{First: 500, Last: 599}}, Cost: 2}})
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New()
	limit, err := httplimit.New(store, httplimit.Policy(set),
		httplimit.Cost(func(*http.Request) int64 { return 20 }),
		httplimit.Settle(func(_ *http.Request, end httplimit.Response) int64 { return end.Cost }))
	if err != nil {
		t.Fatal(err)
	}
	fails := false
	server := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := left(t, store, rule); got != 60 {
			t.Errorf("while the request is served %d units remain, want 60", got)
		}
		if fails {
			w.WriteHeader(503)
		}
		_, _ = io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		if !httplimit.SetCost(r.Context(), 3) {
			t.Error("the cost is not taken")
		}
	})))
	defer server.Close()
	get := func() {
		t.Helper()
		res, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
	}
	get()
	if got := left(t, store, rule); got != 94 {
		t.Errorf("%d units remain, want 94: the request cost 3 at 2 each", got)
	}
	if err := headgate.New(store, rule).Reset(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	fails = true
	get()
	if got := left(t, store, rule); got != 100 {
		t.Errorf("%d units remain, want 100: a failure costs nothing", got)
	}
	if httplimit.SetCost(t.Context(), 1) {
		t.Error("a cost is taken where there is no middleware")
	}
}

// TestSettleLate: of an answer that takes longer than the reservation holds, what is
// missing is charged, and nothing is given back.
func TestSettleLate(t *testing.T) {
	rule := headgate.MustRule("bytes", headgate.Sliding(100, 24*time.Hour))
	for name, c := range map[string]struct{ bytes, left int }{"more": {30, 70}, "less": {3, 90}} {
		var clock atomic.Int64
		clock.Store(1_763_712_000_000_000)
		store := memory.New(memory.Clock(clock.Load))
		limit, err := httplimit.New(store, httplimit.Limit(httplimit.Everyone(), rule),
			httplimit.Cost(func(*http.Request) int64 { return 10 }),
			httplimit.Settle(func(_ *http.Request, end httplimit.Response) int64 { return end.Bytes }))
		if err != nil {
			t.Fatal(err)
		}
		limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", c.bytes))
			clock.Add(time.Hour.Microseconds())
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		if got := left(t, store, rule); got != int64(c.left) {
			t.Errorf("%s: %d units remain, want %d", name, got, c.left)
		}
	}
}

// TestSettleNeedsALedger: a store that remembers nothing cannot settle.
func TestSettleNeedsALedger(t *testing.T) {
	_, err := httplimit.New(forgetful{memory.New()}, httplimit.Limit(httplimit.Everyone(), headgate.MustRule("r", headgate.PerSecond(1))),
		httplimit.Settle(func(*http.Request, httplimit.Response) int64 { return 1 }))
	if err == nil || !strings.Contains(err.Error(), "Settle needs a store that remembers requests") {
		t.Errorf("the error is %v", err)
	}
}

// forgetful is a store and no ledger.
type forgetful struct{ store headgate.Store }

func (f forgetful) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return f.store.Take(ctx, op, checks, dst)
}
