package permits

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/bubbletest"
)

func mustNew(t testing.TB, c Config) *Gate {
	t.Helper()
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func reasonOf(t testing.TB, err error) flow.Reason {
	t.Helper()
	rejection, ok := errors.AsType[*flow.Rejection](err)
	if !ok {
		t.Fatalf("the error is %v, want a rejection", err)
	}
	return rejection.Reason
}

func TestKeys(t *testing.T) {
	t.Parallel()
	g := mustNew(t, Config{Limit: 2})
	take := func(key string, want bool) flow.Permit {
		t.Helper()
		p, err := g.TryAcquire(t.Context(), flow.Request{Key: key})
		if (err == nil) != want {
			t.Fatalf("TryAcquire(%q) with %d of %d in use: %v", key, g.InUse(key), g.Limit(), err)
		}
		return p
	}
	first, second := take("a", true), take("a", true)
	take("a", false)
	empty := take("", true)
	other := take("b", true)
	if n := g.Keys(); n != 3 {
		t.Errorf("%d keys are in use, want 3", n)
	}
	if !first.Done(flow.Success) || first.Done(flow.Success) || first.Held() {
		t.Error("the first Done of a permit counts, and no other")
	}
	third := take("a", true)
	refused := take("a", false)
	refused.Done(flow.Success) // there is nothing to give back
	take("a", false)
	for _, p := range []flow.Permit{second, third, other, empty} {
		p.Done(flow.Success)
	}
	if n := g.Keys(); n != 0 {
		t.Errorf("%d keys are kept of which nothing is in progress", n)
	}
	s := g.Stats()
	if s.Admitted != 5 || s.Rejected[flow.ReasonBusy] != 3 || s.Done[flow.Success] != 5 || s.InUse != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Name: "x", Queue: -1, MaxWait: -1, MaxKeys: -1})
	invalid, ok := errors.AsType[*headgate.InvalidError](err)
	if !ok || len(invalid.Problems) != 4 {
		t.Fatalf("New: %v, want four problems", err)
	}
	g := mustNew(t, Config{Limit: 1})
	if err := g.SetLimit(headgate.MaxPermits + 1); !errors.Is(err, headgate.ErrInvalid) || g.Limit() != 1 {
		t.Errorf("SetLimit: %v, and the limit is %d", err, g.Limit())
	}
	for _, r := range []flow.Request{{Cost: -1}, {Cost: math.MaxInt64}, {Class: 2}, {Class: -3}} {
		if _, err := g.Acquire(t.Context(), r); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("Acquire(%+v): %v", r, err)
		}
	}
}

func TestRejections(t *testing.T) {
	t.Parallel()
	g := mustNew(t, Config{Name: "reports", Limit: 3, MaxKeys: 1})
	p, err := g.TryAcquire(t.Context(), flow.Request{Key: "a", Cost: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		request flow.Request
		want    flow.Rejection
	}{
		{flow.Request{Key: "a", Cost: 2}, flow.Rejection{Reason: flow.ReasonBusy, Retry: true, InUse: 2}},
		{flow.Request{Key: "a", Cost: 4}, flow.Rejection{Reason: flow.ReasonTooLarge, RetryAfter: headgate.Never, InUse: 2}},
		{flow.Request{Key: "b"}, flow.Rejection{Reason: flow.ReasonKeys, Retry: true}},
	} {
		c.want.Gate, c.want.Limit = "reports", 3
		_, err := g.TryAcquire(t.Context(), c.request)
		got, ok := errors.AsType[*flow.Rejection](err)
		if !ok || *got != c.want || !errors.Is(err, flow.ErrShed) {
			t.Errorf("TryAcquire(%+v): %+v, want %+v", c.request, err, c.want)
		}
	}
	p.Done(flow.Success)
	if _, err := g.TryAcquire(t.Context(), flow.Request{Key: "b"}); err != nil {
		t.Errorf("the key that is free again: %v", err)
	}
}

func TestRetryAfterComesFromHowLongPermitsAreHeld(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		g := mustNew(t, Config{Limit: 2, Shared: true})
		for range 2 * timed {
			p, err := g.TryAcquire(t.Context(), flow.Request{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			p.Done(flow.Success)
		}
		for range 2 {
			if _, err := g.TryAcquire(t.Context(), flow.Request{}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := g.TryAcquire(t.Context(), flow.Request{})
		rejection, _ := errors.AsType[*flow.Rejection](err)
		if rejection == nil || rejection.RetryAfter != 50*time.Millisecond {
			t.Errorf("rejection: %+v, want to retry after 50 ms", rejection)
		}
	})
}

// asked is a request that waits in a goroutine.
type asked struct {
	mu     sync.Mutex
	answer flow.Permit
	fault  error
	over   bool
}

func ask(ctx context.Context, g flow.Gate, r flow.Request) *asked {
	a := &asked{}
	go func() {
		p, err := g.Acquire(ctx, r)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.answer, a.fault, a.over = p, err, true
	}()
	bubbletest.Wait()
	return a
}

func (a *asked) get() (p flow.Permit, ended bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answer, a.over, a.fault
}

func (a *asked) permit() flow.Permit { p, _, _ := a.get(); return p }
func (a *asked) err() error          { _, _, err := a.get(); return err }
func (a *asked) ended() bool         { _, ended, _ := a.get(); return ended }

func TestWaiting(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		g := mustNew(t, Config{Limit: 1, Queue: 3, MaxWait: time.Second})
		first := ask(t.Context(), g, flow.Request{Key: "k"})
		if first.err() != nil || !first.ended() {
			t.Fatalf("first: %+v", first)
		}
		low := ask(t.Context(), g, flow.Request{Key: "k", Class: flow.Sheddable, Tenant: "x"})
		high := ask(t.Context(), g, flow.Request{Key: "k", Tenant: "x"})
		newest := ask(t.Context(), g, flow.Request{Key: "k", Class: flow.Sheddable, Tenant: "x"})
		// A fourth displaces the newest of the least class.
		higher := ask(t.Context(), g, flow.Request{Key: "k", Class: flow.CriticalPlus})
		if !newest.ended() || reasonOf(t, newest.err()) != flow.ReasonDisplaced {
			t.Errorf("newest: %+v", newest)
		}
		full := ask(t.Context(), g, flow.Request{Key: "k", Class: flow.Sheddable, Tenant: "x"})
		if !full.ended() || reasonOf(t, full.err()) != flow.ReasonQueueFull {
			t.Errorf("full: %+v", full)
		}
		if s := g.Stats(); s.Waiting != 3 || s.InUse != 1 {
			t.Errorf("stats: %+v", s)
		}
		first.permit().Done(flow.Success)
		bubbletest.Wait()
		if !higher.ended() || high.ended() || low.ended() {
			t.Error("the most important class goes first")
		}
		higher.permit().Done(flow.Success)
		bubbletest.Wait()
		if !high.ended() || low.ended() {
			t.Error("then the next")
		}
		time.Sleep(time.Second)
		bubbletest.Wait()
		if !low.ended() || reasonOf(t, low.err()) != flow.ReasonWaited {
			t.Errorf("low: %+v", low)
		}
		high.permit().Done(flow.Success)
		if g.Keys() != 0 {
			t.Errorf("%d keys are kept", g.Keys())
		}
	})
}

func TestContextEndsWaiting(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		g := mustNew(t, Config{Name: "g", Limit: 1, Queue: 3})
		first := ask(t.Context(), g, flow.Request{})
		why := errors.New("the client is gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		second := ask(ctx, g, flow.Request{})
		third := ask(t.Context(), g, flow.Request{})
		cancel(why)
		bubbletest.Wait()
		if !second.ended() || !errors.Is(second.err(), why) || third.ended() {
			t.Errorf("second: %+v, third: %+v", second, third)
		}
		if over := ask(ctx, g, flow.Request{}); !errors.Is(over.err(), why) {
			t.Errorf("a context that has ended before: %+v", over)
		}
		first.permit().Done(flow.Success)
		bubbletest.Wait()
		if !third.ended() || third.err() != nil {
			t.Errorf("third: %+v", third)
		}
	})
}

// Small requests pass a large one that does not fit, until as many units as the limit
// have passed it; then it is served next.
func TestLargeAndSmall(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		const limit = 4
		g := mustNew(t, Config{Limit: limit, Shared: true, Queue: 100})
		holder := ask(t.Context(), g, flow.Request{Cost: limit - 1})
		large := ask(t.Context(), g, flow.Request{Tenant: "large", Cost: limit})
		passed := 0
		for !large.ended() {
			small := ask(t.Context(), g, flow.Request{Tenant: "small"})
			if !small.ended() {
				break
			}
			passed++
			small.permit().Done(flow.Success)
			bubbletest.Wait()
		}
		if passed != limit {
			t.Errorf("%d small ones passed, want %d", passed, limit)
		}
		holder.permit().Done(flow.Success)
		bubbletest.Wait()
		if !large.ended() || large.err() != nil {
			t.Fatalf("large: %+v", large)
		}
		large.permit().Done(flow.Success)
		bubbletest.Wait()
		if s := g.Stats(); s.Waiting != 0 || s.InUse != 1 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestResize(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		g := mustNew(t, Config{Limit: 2, Shared: true, Queue: 10})
		one, two := ask(t.Context(), g, flow.Request{}), ask(t.Context(), g, flow.Request{})
		waits := ask(t.Context(), g, flow.Request{})
		large := ask(t.Context(), g, flow.Request{Cost: 2, Tenant: "large"})
		if err := g.SetLimit(1); err != nil {
			t.Fatal(err)
		}
		bubbletest.Wait()
		if !large.ended() || reasonOf(t, large.err()) != flow.ReasonTooLarge {
			t.Errorf("what can no longer fit: %+v", large)
		}
		one.permit().Done(flow.Success)
		bubbletest.Wait()
		if waits.ended() {
			t.Error("there is a permit while one of one is taken")
		}
		if err := g.SetLimit(3); err != nil {
			t.Fatal(err)
		}
		bubbletest.Wait()
		if !waits.ended() || waits.err() != nil {
			t.Errorf("after the limit was raised: %+v", waits)
		}
		two.permit().Done(flow.Success)
		waits.permit().Done(flow.Success)
	})
}

func TestNested(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		g := mustNew(t, Config{Limit: 1, Queue: 10})
		outer, err := g.Acquire(t.Context(), flow.Request{Key: "a"})
		if err != nil {
			t.Fatal(err)
		}
		ctx := outer.Context(t.Context())
		inner, err := g.Acquire(ctx, flow.Request{Key: "a"})
		if err != nil || inner.Held() || g.InUse("a") != 1 {
			t.Errorf("inside itself: %v, held %t, %d in use", err, inner.Held(), g.InUse("a"))
		}
		// Another key is taken if it is free, and both are known then.
		other, err := g.Acquire(ctx, flow.Request{Key: "b"})
		if err != nil || !other.Held() {
			t.Fatalf("another key: %v", err)
		}
		both := other.Context(ctx)
		for _, key := range []string{"a", "b"} {
			if p, err := g.Acquire(both, flow.Request{Key: key}); err != nil || p.Held() {
				t.Errorf("key %q inside both: %v, held %t", key, err, p.Held())
			}
		}
		// A key that is not free is refused at once: its holder may wait for ours.
		if _, err := g.Acquire(ctx, flow.Request{Key: "b"}); reasonOf(t, err) != flow.ReasonBusy {
			t.Errorf("a key that is taken: %v", err)
		}
		outer.Done(flow.Success)
		other.Done(flow.Success)
		// The context of a permit that was given back is like any other.
		again, err := g.Acquire(ctx, flow.Request{Key: "a"})
		if err != nil || !again.Held() {
			t.Errorf("after the permit was given back: %v, held %t", err, again.Held())
		}
	})
}

// A copy of a permit that was given back does nothing to the one that came after it.
func TestStaleCopies(t *testing.T) {
	t.Parallel()
	g := mustNew(t, Config{Limit: 1, Shared: true})
	var stale []flow.Permit
	for range 100 {
		p, err := g.TryAcquire(t.Context(), flow.Request{})
		if err != nil {
			t.Fatal(err)
		}
		for _, old := range stale {
			if old.Done(flow.Success) || old.Held() {
				t.Fatal("a permit was given back twice")
			}
		}
		if g.InUse("") != 1 {
			t.Fatal("a stale copy has given the permit of another back")
		}
		p.Done(flow.Success)
		stale = append(stale, p)
	}
}

// Whatever happens, no more is in use than the limit, everybody gets one answer, and
// nothing is left at the end.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		const limit, keys = 3, 5
		g := mustNew(t, Config{Limit: limit, Shared: shared, Queue: 4, MaxWait: time.Millisecond})
		var inProgress [keys]atomic.Int64
		var admitted atomic.Int64
		var all sync.WaitGroup
		for worker := range 16 {
			all.Go(func() {
				for i := range 1000 {
					key := 0
					if !shared {
						key = (i + worker) % keys
					}
					cost := int64(1 + i%2)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%3)*time.Millisecond+time.Microsecond)
					p, err := g.Acquire(ctx, flow.Request{
						Key: strconv.Itoa(key), Cost: cost, Class: flow.ClassOfRank(i % flow.Classes), Tenant: strconv.Itoa(worker),
					})
					if err == nil {
						if n := inProgress[key].Add(cost); n > limit {
							t.Errorf("%d in progress, want at most %d", n, limit)
						}
						admitted.Add(1)
						inProgress[key].Add(-cost)
						p.Done(flow.Outcome(i % flow.Outcomes))
						p.Done(flow.Success)
					}
					cancel()
				}
			})
		}
		all.Wait()
		s := g.Stats()
		if admitted.Load() == 0 || s.InUse != 0 || s.Waiting != 0 || s.Keys != 0 {
			t.Errorf("shared %t: %d admitted, at the end %+v", shared, admitted.Load(), s)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	g := mustNew(t, Config{Limit: 2, Queue: 4})
	full := mustNew(t, Config{Limit: 1})
	if _, err := full.TryAcquire(t.Context(), flow.Request{Key: "k"}); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() {
		p, err := g.Acquire(ctx, flow.Request{Key: "k"})
		if err != nil {
			t.Error(err)
		}
		p.Done(flow.Success)
	}); n != 0 {
		t.Errorf("Acquire and Done allocate %v times", n)
	}
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := full.TryAcquire(ctx, flow.Request{Key: "k"}); err == nil {
			t.Error("there was a permit")
		}
	}); n != 0 {
		t.Errorf("a rejection allocates %v times", n)
	}
}

func BenchmarkAcquire(b *testing.B) {
	ctx := context.Background()
	for _, c := range []struct {
		name   string
		config Config
	}{
		{"keyed", Config{Limit: math.MaxInt32 / 4}},
		{"shared", Config{Limit: math.MaxInt32 / 4, Shared: true, Queue: 10}},
	} {
		g := mustNew(b, c.config)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, _ := g.Acquire(ctx, flow.Request{Key: "user42"})
				p.Done(flow.Success)
			}
		})
	}
}

func BenchmarkReject(b *testing.B) {
	ctx := context.Background()
	g := mustNew(b, Config{Limit: 1})
	if _, err := g.TryAcquire(ctx, flow.Request{Key: "user42"}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = g.TryAcquire(ctx, flow.Request{Key: "user42"})
	}
}
