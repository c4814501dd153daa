package async_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// asyncAround makes a layer around a store, which ends with the test.
func open(t testing.TB, store headgate.Store, options async.Options) *async.Layer {
	t.Helper()
	a, err := async.New(store, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a
}

// TestAsyncConformance: rules that are not async are decided as by the store alone,
// ledger and all.
func TestAsyncConformance(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock func() int64) headgate.Store {
		return open(t, memory.New(memory.Clock(clock)), async.Options{}).Store()
	})
}

// anAsync is a check that is counted asynchronously.
func anAsync(limits ...headgate.Limit) headgate.Check {
	return headgate.Check{Rule: headgate.MustRule("async", limits...), Key: "k", Hints: headgate.Hints{Consistency: headgate.Async}}
}

// knownIn takes single units until they are decided from memory, and returns how many.
func knownIn(t *testing.T, s headgate.Store, c headgate.Check) int64 {
	t.Helper()
	for n := int64(1); n < 100; n++ {
		if d := layertest.Take(t, s, c).Decisions[0]; !d.Allowed {
			t.Fatalf("denied: %+v", d)
		} else if d.Source == headgate.SourceAsync {
			return n
		}
	}
	t.Fatal("nothing is decided from memory")
	return 0
}

// leftInStore is what the store itself has left.
func leftInStore(t *testing.T, s headgate.Store, c headgate.Check) int64 {
	t.Helper()
	d, err := s.Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d[0].Remaining
}

// TestAsyncSavesCalls: a hot key costs a call for each report and for each part of
// what is left, and nothing is lost.
func TestAsyncSavesCalls(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		a := open(t, primary, async.Options{})
		c := anAsync(headgate.Per(100_000, 300*24*time.Hour))
		admitted := int64(0)
		for range 20_000 {
			if layertest.Take(t, a.Store(), c).Allowed {
				admitted++
			}
			time.Sleep(50 * time.Microsecond)
		}
		if calls := primary.Calls.Load(); calls > 40 {
			t.Errorf("%d calls for 20,000 decisions in one second", calls)
		}
		time.Sleep(time.Second)
		if left := leftInStore(t, primary, c); admitted != 20_000 || left != 80_000 {
			t.Errorf("%d were admitted, and the store has %d left", admitted, left)
		}
		if s := a.Stats(); s.Keys != 0 || s.Unreported != 0 || s.Local < 19_000 || s.Local+s.Asked != 20_000 || s.Reports < 9 || s.Failed != 0 {
			t.Errorf("an idle key: %+v", s)
		}
	})
}

// TestAsyncAlone: one node alone admits exactly what the limit does, of every kind,
// and says so.
func TestAsyncAlone(t *testing.T) {
	for _, limit := range []headgate.Limit{
		headgate.Per(1000, 300*24*time.Hour),
		headgate.Sliding(1000, time.Hour),
		{Algorithm: headgate.FixedWindow, Count: 1000, Period: time.Hour, Align: headgate.AlignFirst},
		{Algorithm: headgate.SlidingCounter, Count: 1000, Period: 24 * time.Hour},
		headgate.Sliding(3, time.Hour),
	} {
		bubbletest.Test(t, func(t *testing.T) {
			a := open(t, layertest.NewScripted(), async.Options{})
			c := anAsync(limit)
			admitted, last := int64(0), limit.Count
			for range 1500 {
				v := layertest.Take(t, a.Store(), c)
				d := v.Decisions[0]
				switch {
				case v.Allowed:
					admitted++
				case d.RetryAfter <= 0 || d.Remaining > last:
					t.Fatalf("%s denied with %+v after %d", &limit, d, admitted)
				}
				last = d.Remaining
				if d.Remaining != limit.Count-admitted || d.ResetAfter <= 0 || d.Limit != &c.Rule.Limits()[0] || d.Rule != c.Rule {
					t.Fatalf("%s after %d: %+v", &limit, admitted, d)
				}
				time.Sleep(time.Millisecond)
			}
			if admitted != limit.Count {
				t.Errorf("%s admitted %d", &limit, admitted)
			}
			c.Cost = limit.Count + 1
			if v := layertest.Take(t, a.Store(), c); v.Allowed || v.RetryAfter != headgate.Never {
				t.Errorf("a cost that can never fit: %+v", v)
			}
		})
	}
}

// TestAsyncRetryAfter: a denial says when it is worth while to come back, and that is
// right for a bucket that nobody else uses.
func TestAsyncRetryAfter(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		a := open(t, layertest.NewScripted(), async.Options{})
		c := anAsync(headgate.PerSecond(100))
		for range 1000 {
			if v := layertest.Take(t, a.Store(), c); !v.Allowed {
				if v.RetryAfter > 200*time.Millisecond {
					t.Fatalf("retry after %v", v.RetryAfter)
				}
				time.Sleep(v.RetryAfter + time.Microsecond)
				if v := layertest.Take(t, a.Store(), c); !v.Allowed {
					t.Fatalf("denied at the time that was named: %+v", v)
				}
			}
		}
		c.Cost = 100
		if v := layertest.Take(t, a.Store(), c); v.Allowed || v.RetryAfter < 900*time.Millisecond || v.RetryAfter > 1200*time.Millisecond {
			t.Errorf("a full bucket's worth: %+v", v)
		}
	})
}

// TestAsyncDebt: what nodes have admitted too much together counts against what comes
// next, so that the rate is right in the long run.
func TestAsyncDebt(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		c := anAsync(headgate.PerSecond(1000))
		var nodes []*async.Layer
		admitted := int64(0)
		for range 4 {
			a := open(t, primary, async.Options{Part: 1})
			nodes = append(nodes, a)
			admitted += knownIn(t, a.Store(), c)
		}
		time.Sleep(100 * time.Millisecond)
		for _, a := range nodes { // Each believes that all is its own.
			admitted += layertest.Spend(t, a.Store(), c)
		}
		if admitted < 1500 {
			t.Fatalf("%d units at once: the limit was not exceeded", admitted)
		}
		for range 300 { // until everybody has heard of it
			time.Sleep(time.Millisecond)
			for _, a := range nodes {
				if layertest.Take(t, a.Store(), c).Allowed {
					admitted++
				}
			}
		}
		start := time.Now()
		d, err := primary.Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil)
		if err != nil {
			t.Fatal(err)
		}
		overdrawn := d[0].ResetAfter - time.Second
		for time.Since(start) < overdrawn-20*time.Millisecond {
			for _, a := range nodes {
				if v := layertest.Take(t, a.Store(), c); v.Allowed {
					t.Fatalf("admitted after %v, and %v have to be paid back: %+v", time.Since(start), overdrawn, v)
				}
			}
			time.Sleep(time.Millisecond)
		}
		for time.Since(start) < 20*time.Second {
			time.Sleep(5 * time.Millisecond)
			for _, a := range nodes {
				for range 5 {
					if layertest.Take(t, a.Store(), c).Allowed {
						admitted++
					}
				}
			}
		}
		if may := int64(21_400); admitted > may+may/100 || admitted < may-may/50 {
			t.Errorf("%d units in 20.4 s, may be about %d", admitted, may)
		}
	})
}

// TestAsyncNeedsTheStore: limits that delay and penalties are decided by the store
// each time, and so is every rule that has one.
func TestAsyncNeedsTheStore(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		a := open(t, primary, async.Options{})
		for _, c := range []headgate.Check{
			anAsync(headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1000, Period: time.Second}),
			anAsync(headgate.PerSecond(1000), headgate.Blocking(5, time.Minute, time.Minute, time.Hour)),
		} {
			for range 20 {
				before := primary.Calls.Load()
				if d := layertest.Take(t, a.Store(), c).Decisions[0]; d.Source != headgate.SourceStore || primary.Calls.Load() != before+1 {
					t.Fatalf("%s: %+v", c.Rule, d)
				}
			}
		}
	})
}

// TestAsyncAllOrNone: of checks of both kinds all are charged or none, and the
// decisions come in order.
func TestAsyncAllOrNone(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		a := open(t, primary, async.Options{})
		async := anAsync(headgate.PerHour(1000), headgate.Sliding(2000, time.Hour))
		strict := headgate.Check{Rule: headgate.MustRule("strict", headgate.Sliding(10, time.Hour)), Key: "k"}
		charged := knownIn(t, a.Store(), async)
		for i := range 15 {
			d, err := a.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{async, strict, {Rule: async.Rule, Key: "other", Hints: headgate.Hints{Consistency: headgate.Async}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			v := headgate.NewVerdict(d)
			places := []int{0, 0, 1, 2, 2}
			for j := range d {
				if len(d) != 5 || d[j].Check != places[j] || d[j].Allowed != (i < 10 || j != 2) {
					t.Fatalf("request %d: %+v", i, d)
				}
			}
			if v.Allowed != (i < 10) {
				t.Fatalf("request %d: %+v", i, v)
			}
			if d[0].Source != headgate.SourceAsync || d[2].Source != headgate.SourceStore {
				t.Fatalf("sources %v and %v", d[0].Source, d[2].Source)
			}
			if want := 1000 - charged - int64(min(i+1, 10)); d[0].Remaining != want {
				t.Fatalf("request %d: %d left, want %d", i, d[0].Remaining, want)
			}
		}
		// A denial from memory asks nobody, and charges nobody.
		async.Cost = 1001
		calls := primary.Calls.Load()
		d, err := a.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{strict, async}, nil)
		if err != nil || headgate.NewVerdict(d).Allowed || d[0].Check != 1 || primary.Calls.Load() != calls {
			t.Errorf("got %+v, %v", d, err)
		}
		// A shadow has no say.
		async.Shadow = true
		strict.Key = "fresh"
		d, err = a.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{strict, async}, nil)
		if err != nil || !headgate.NewVerdict(d).Allowed || len(d) != 3 || d[1].Allowed {
			t.Errorf("got %+v, %v", d, err)
		}
		async.Shadow, async.Cost = false, 0
		time.Sleep(time.Second)
		if left := leftInStore(t, primary, async); left != 1000-charged-10 {
			t.Errorf("%d left, want %d", left, 1000-charged-10)
		}
		if left := leftInStore(t, primary, headgate.Check{Rule: strict.Rule, Key: "k"}); left != 0 {
			t.Errorf("%d left of the strict rule", left)
		}
	})
}

// TestAsyncOps: a peek charges nothing, a refund gives back what the store does not
// know of and what it does, and after a reset nothing is owed.
func TestAsyncOps(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		a := open(t, primary, async.Options{})
		c := anAsync(headgate.Per(1000, 300*24*time.Hour))
		do := func(op headgate.Op, cost, at int64) headgate.Decision {
			t.Helper()
			c := c
			c.Cost, c.At = cost, headgate.Instant(at)
			d, err := a.Store().Take(t.Context(), op, []headgate.Check{c}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if op == headgate.OpReset {
				return headgate.Decision{}
			}
			return d[0]
		}
		used := knownIn(t, a.Store(), c)
		if d := do(headgate.OpPeek, 1, 0); d.Source != headgate.SourceAsync || !d.Allowed || d.Remaining != 1000-used {
			t.Fatalf("peek: %+v", d)
		}
		d := do(headgate.OpTake, 7, 0)
		if d.Source != headgate.SourceAsync {
			t.Fatalf("take: %+v", d)
		}
		if d := do(headgate.OpRefund, 7, int64(d.At)+1); d.Source != headgate.SourceAsync || d.Remaining != 1000-used {
			t.Fatalf("refund of what is here: %+v", d)
		}
		if d := do(headgate.OpRefund, 100, 0); d.Source != headgate.SourceAsync || d.Remaining != 1000-used || a.Stats().Returning != 100 {
			t.Fatalf("refund of what is not here: %+v, %+v", d, a.Stats())
		}
		do(headgate.OpReset, 0, 0)
		if d := do(headgate.OpTake, 20, 0); d.Source != headgate.SourceStore || d.Remaining != 980 {
			t.Fatalf("take after a reset: %+v", d)
		}
		time.Sleep(150 * time.Millisecond)
		if left := leftInStore(t, primary, c); left != 980 {
			t.Fatalf("%d left after a reset and a take", left)
		}
		d = do(headgate.OpTake, 5, 0)
		time.Sleep(150 * time.Millisecond)
		if d := do(headgate.OpRefund, 5, int64(d.At)); !d.Allowed {
			t.Fatalf("refund of what was reported: %+v", d)
		}
		time.Sleep(500 * time.Millisecond)
		if left := leftInStore(t, primary, c); left != 980 {
			t.Errorf("%d left", left)
		}
	})
}

// TestAsyncLimitsChange: when a rule's limits change, the store is asked anew, and
// what is owed is charged under the new ones.
func TestAsyncLimitsChange(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		a := open(t, primary, async.Options{})
		c := anAsync(headgate.Sliding(1000, time.Hour))
		used := knownIn(t, a.Store(), c)
		again := anAsync(headgate.Sliding(1000, time.Hour)) // the same, made anew
		if d := layertest.Take(t, a.Store(), again).Decisions[0]; d.Source != headgate.SourceAsync || d.Rule != again.Rule || d.Limit != &again.Rule.Limits()[0] {
			t.Fatalf("got %+v", d)
		}
		other := anAsync(headgate.Sliding(100, time.Hour))
		if d := layertest.Take(t, a.Store(), other).Decisions[0]; d.Source != headgate.SourceStore || d.Remaining != 100-used-2 {
			t.Fatalf("got %+v after %d", d, used+2)
		}
	})
}

// TestAsyncBounded: beyond MaxKeys keys are counted strictly, and keys that nobody
// asks for make room.
func TestAsyncBounded(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		a := open(t, layertest.NewScripted(), async.Options{MaxKeys: 64})
		c := anAsync(headgate.PerSecond(100_000))
		for range 3 {
			for i := range 2000 {
				c.Key = fmt.Sprint(i)
				layertest.Take(t, a.Store(), c)
			}
		}
		if s := a.Stats(); s.Keys > 64 || s.Keys < 32 || s.Local == 0 {
			t.Errorf("got %+v", s)
		}
		time.Sleep(time.Second)
		if s := a.Stats(); s.Keys != 0 {
			t.Errorf("idle: %+v", s)
		}
	})
}

// TestAsyncOutage: while the store is away this node goes on for a while, then
// leaves the decision to the store's own layers, and tells of everything afterwards.
func TestAsyncOutage(t *testing.T) {
	for h, ends := range map[layertest.Health]error{layertest.Refuses: layertest.ErrRefused, layertest.Hangs: context.DeadlineExceeded} {
		bubbletest.Test(t, func(t *testing.T) {
			primary := layertest.NewScripted()
			a := open(t, primary, async.Options{})
			c := anAsync(headgate.Per(100_000, 300*24*time.Hour))
			admitted := knownIn(t, a.Store(), c)
			primary.Feel(h)
			began := time.Now()
			for passed := time.Duration(0); ; passed = time.Since(began) {
				d, err := a.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil)
				if err != nil {
					if !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, ends) {
						t.Fatal(err)
					}
					if passed > 350*time.Millisecond || passed < 200*time.Millisecond {
						t.Errorf("it went on for %v", passed)
					}
					break
				}
				if d[0].Source != headgate.SourceAsync {
					t.Fatalf("got %+v", d[0])
				}
				admitted++
				time.Sleep(time.Millisecond)
			}
			if s := a.Stats(); s.Failed == 0 {
				t.Errorf("got %+v", s)
			}
			primary.Feel(layertest.Well)
			time.Sleep(time.Second)
			left := leftInStore(t, primary, c)
			if h == layertest.Refuses && left != 100_000-admitted || left < 100_000-admitted {
				t.Errorf("%d left after %d", left, admitted)
			}
			if s := a.Stats(); s.Unreported != 0 || s.Keys != 0 {
				t.Errorf("got %+v", s)
			}
		})
	}
}

// TestAsyncOverFallback: decisions that were made without the store are no knowledge:
// each is asked for.
func TestAsyncOverFallback(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorAllow})
		a := open(t, f.Store(), async.Options{})
		c := anAsync(headgate.PerSecond(1000))
		layertest.Fail(t, f, primary, layertest.Refuses)
		for range 50 {
			if d := layertest.Take(t, a.Store(), c).Decisions[0]; d.Source != headgate.SourceOpen || !d.Allowed {
				t.Fatalf("got %+v", d)
			}
			time.Sleep(time.Millisecond)
		}
		layertest.Recover(t, f, primary)
		knownIn(t, a.Store(), c)
	})
}

// charges has the number of calls that charge, and of their checks, counted.
type charges struct {
	*memory.Store
	calls, keys atomic.Int64
}

func (s *charges) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if op == headgate.OpCharge {
		s.calls.Add(1)
		s.keys.Add(int64(len(checks)))
	}
	return s.Store.Take(ctx, op, checks, dst)
}

// TestAsyncReportsTogether: many keys are told of in one call.
func TestAsyncReportsTogether(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := &charges{Store: memory.New()}
		a := open(t, store, async.Options{})
		c := anAsync(headgate.PerSecond(100_000))
		for range 3 {
			for i := range 1000 {
				c.Key = fmt.Sprint(i)
				layertest.Take(t, a.Store(), c)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if calls, keys := store.calls.Load(), store.keys.Load(); keys < 950 || keys > 1000 || calls > 16 {
			t.Errorf("%d keys in %d calls", keys, calls)
		}
	})
}

// TestAsyncClose: what was admitted last is reported; if that is not possible the
// error says how much. After that the store decides.
func TestAsyncClose(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		a := open(t, primary, async.Options{})
		c := anAsync(headgate.Per(1000, 300*24*time.Hour))
		used := knownIn(t, a.Store(), c)
		primary.Feel(layertest.Refuses)
		if err := a.Close(t.Context()); !errors.Is(err, layertest.ErrRefused) || !strings.Contains(err.Error(), "1 units") {
			t.Errorf("got %v", err)
		}
		primary.Feel(layertest.Well)
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if d := layertest.Take(t, a.Store(), c).Decisions[0]; d.Source != headgate.SourceStore || d.Remaining != 1000-used-1 {
			t.Errorf("after the end: %+v", d)
		}
	})
}

func TestAsyncOptions(t *testing.T) {
	_, err := async.New(nil, async.Options{Interval: time.Microsecond, Part: 1.5, MaxKeys: -1})
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 4 {
		t.Errorf("got %v", err)
	}
	a := open(t, layertest.NewScripted(), async.Options{})
	c := anAsync(headgate.PerSecond(1))
	c.Cost = -1
	if _, err := a.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil); !errors.As(err, &invalid) {
		t.Errorf("got %v", err)
	}
}

// TestAsyncAllocates: a decision from memory costs no allocation.
func TestAsyncAllocates(t *testing.T) {
	a := open(t, layertest.NewScripted(), async.Options{Interval: time.Minute})
	store := a.Store()
	c := []headgate.Check{anAsync(headgate.PerSecond(1_000_000_000))}
	knownIn(t, store, c[0])
	dst := slices.Grow([]headgate.Decision(nil), 4)
	if n := testing.AllocsPerRun(1000, func() {
		if d, err := store.Take(t.Context(), headgate.OpTake, c, dst[:0]); err != nil || d[0].Source != headgate.SourceAsync {
			t.Errorf("got %+v, %v", d, err)
		}
	}); n > 0 && !race.Enabled {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAsync(b *testing.B) {
	a := open(b, layertest.NewScripted(), async.Options{})
	store := a.Store()
	c := []headgate.Check{anAsync(headgate.PerSecond(1_000_000_000))}
	b.RunParallel(func(p *testing.PB) {
		var dst []headgate.Decision
		for p.Next() {
			dst, _ = store.Take(context.Background(), headgate.OpTake, c, dst[:0])
		}
	})
}
