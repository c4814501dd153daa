package memory_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestAllocations: a decision takes nothing from the heap, once its counter exists.
func TestAllocations(t *testing.T) {
	clock := storetest.NewClock(storetest.Epoch)
	limits := map[string][]headgate.Limit{
		"token_bucket":    {headgate.PerSecond(1000)},
		"leaky_bucket":    {{Algorithm: headgate.LeakyBucket, Count: 1000, Period: time.Second}},
		"fixed_window":    {{Algorithm: headgate.FixedWindow, Count: 1000, Period: time.Second}},
		"calendar":        {{Algorithm: headgate.FixedWindow, Count: 1000, Align: headgate.AlignMonth}},
		"sliding_window":  {headgate.Sliding(50, time.Second), headgate.Sliding(60, 2*time.Second)},
		"seldom":          {headgate.Sliding(50, time.Microsecond)},
		"sliding_counter": {{Algorithm: headgate.SlidingCounter, Count: 1000, Period: time.Second}},
		"several":         {headgate.PerSecond(1000), headgate.PerMinute(10_000), headgate.Sliding(50, time.Second)},
	}
	for name, l := range limits {
		for _, op := range []headgate.Op{headgate.OpTake, headgate.OpPeek, headgate.OpRefund} {
			t.Run(name+" "+op.String(), func(t *testing.T) {
				s := memory.New(memory.Clock(clock.Now))
				r := headgate.MustRule("r", l...)
				checks := []headgate.Check{{Rule: r, Key: "k"}}
				dst := make([]headgate.Decision, 0, 8)
				run := func() {
					clock.Add(10 * time.Millisecond)
					if _, err := s.Take(context.Background(), op, checks, dst); err != nil {
						t.Error(err)
					}
				}
				for range 1000 {
					take(t, s, headgate.OpTake, checks...)
					run()
				}
				if n := testing.AllocsPerRun(1000, run); n != 0 {
					t.Errorf("%v allocations in a %s, want 0", n, op)
				}
			})
		}
	}
	t.Run("several checks", func(t *testing.T) {
		s := memory.New()
		checks := []headgate.Check{
			{Rule: headgate.MustRule("a", limits["several"]...), Key: "k"},
			{Rule: headgate.MustRule("b", headgate.PerHour(1)), Key: "k"},
			{Rule: headgate.MustRule("b", headgate.PerHour(1)), Key: "l"},
		}
		for want, dst := range [][]headgate.Decision{make([]headgate.Decision, 0, 8), nil} {
			if n := testing.AllocsPerRun(1000, func() {
				if _, err := s.Take(context.Background(), headgate.OpTake, checks, dst); err != nil {
					t.Error(err)
				}
			}); n != float64(want) && !race.Enabled { // its build of slices.Grow allocates more
				t.Errorf("%v allocations with room for %d decisions, want %d", n, cap(dst), want)
			}
		}
	})
	t.Run("many checks", func(t *testing.T) {
		s := memory.New()
		var checks []headgate.Check
		for i := range 16 {
			checks = append(checks, headgate.Check{Rule: headgate.MustRule("r"+strconv.Itoa(i), headgate.PerHour(1)), Key: "k"})
		}
		dst := make([]headgate.Decision, 0, len(checks))
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := s.Take(context.Background(), headgate.OpTake, checks, dst); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations, want 0", n)
		}
	})
}

// TestRebuildUnderLoad has goroutines insert new keys, alone and in checks that
// lock several parts of the store, while counters that all of them use are charged.
func TestRebuildUnderLoad(t *testing.T) {
	for name, options := range map[string][]memory.Option{
		"with room": nil,
		"full":      {memory.MaxBytes(memory.MinMaxBytes)},
	} {
		t.Run(name, func(t *testing.T) {
			clock := storetest.NewClock(storetest.Epoch)
			s := memory.New(append(options, memory.Clock(clock.Now))...)
			const limit, workers, each = 3000, 16, 600
			shared := headgate.MustRule("shared", headgate.Per(limit, 300*24*time.Hour), headgate.Sliding(limit, 300*24*time.Hour))
			own := headgate.MustRule("own", headgate.Per(5, 300*24*time.Hour), headgate.Sliding(1000, 300*24*time.Hour))
			// Its counters exist before the others come, so they are never shared.
			take(t, s, headgate.OpTake, headgate.Check{Rule: shared, Key: "k"})
			admitted := atomic.Int64{}
			admitted.Add(1)
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					for i := range each {
						checks := []headgate.Check{{Rule: shared, Key: "k"}}
						for j := range 1 + i%4 {
							checks = append(checks, headgate.Check{Rule: own, Key: fmt.Sprint(w, i, j)})
						}
						decisions, err := s.Take(context.Background(), headgate.OpTake, checks, nil)
						if err != nil {
							t.Error(err)
							return
						}
						if headgate.NewVerdict(decisions).Allowed {
							admitted.Add(1)
						}
						clock.Add(time.Millisecond)
						if i%16 == 0 {
							s.Stats()
						}
					}
				})
			}
			all.Wait()
			for _, d := range take(t, s, headgate.OpPeek, headgate.Check{Rule: shared, Key: "k"}).Decisions {
				if used := limit - d.Remaining; used != admitted.Load() {
					t.Errorf("%v: %d units are in use, %d requests were admitted", d.Limit, used, admitted.Load())
				}
			}
			if options == nil && admitted.Load() != limit {
				t.Errorf("%d of %d requests were admitted, want %d", admitted.Load(), workers*each, limit)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		want  string
	}{{0, "memory (at most 1 MiB)"}, {-1, "memory (at most 1 MiB)"}, {64 << 20, "memory (at most 64 MiB)"}} {
		if got := memory.New(memory.MaxBytes(c.bytes)).String(); got != c.want {
			t.Errorf("MaxBytes(%d): %q, want %q", c.bytes, got, c.want)
		}
	}
	if got, want := memory.New().String(), "memory (at most 512 MiB)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	clock := storetest.NewClock(storetest.Epoch)
	if now := memory.New(memory.Clock(clock.Now)).Now(); !now.Equal(storetest.Epoch) {
		t.Errorf("Now() is %v, want %v", now, storetest.Epoch)
	}
	before := time.Now().Add(-time.Second)
	if now := memory.New().Now(); now.Before(before) || now.After(time.Now().Add(time.Second)) {
		t.Errorf("Now() is %v, it is %v", now, time.Now())
	}
}

func TestTakeSingle(t *testing.T) {
	clock := storetest.NewClock(storetest.Epoch)
	s := memory.New(memory.Clock(clock.Now))
	for _, l := range []headgate.Limit{headgate.PerHour(3), headgate.Sliding(3, time.Hour)} {
		r := headgate.MustRule(l.Algorithm.String(), l)
		for i, want := range []struct {
			cost, remaining int64
			allowed         bool
		}{{0, 2, true}, {2, 0, true}, {1, 0, false}, {4, 0, false}} {
			allowed, remaining, _, _, _, at, err := s.TakeSingle(t.Context(), r, "k", want.cost)
			if err != nil || allowed != want.allowed || remaining != want.remaining || int64(at) != clock.Now() {
				t.Errorf("%v, step %d: %t, %d remain at %d, %v; want %+v", r, i, allowed, remaining, at, err, want)
			}
		}
	}
	one := headgate.MustRule("one", headgate.PerHour(3))
	two := headgate.MustRule("two", headgate.PerHour(3), headgate.PerMinute(3))
	for name, c := range map[string]struct {
		rule *headgate.Rule
		cost int64
		want string
	}{
		"no rule":    {nil, 1, "headgate: request: check 1 has no rule; make one with NewRule"},
		"cost":       {one, -1, "headgate: request: check 1 (one): the cost is -1, must be 1 to 9007199254740991"},
		"two limits": {two, 1, `headgate: rule "two": it has 2 limits, TakeSingle needs one`},
	} {
		if _, _, _, _, _, _, err := s.TakeSingle(t.Context(), c.rule, "k", c.cost); err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
	}
}
