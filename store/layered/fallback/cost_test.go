package fallback_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/memory"
)

// TestAllocations: around a store that is well, and while it is gone, a decision
// allocates nothing.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Log("the race detector makes sync.Pool forget; its allocations are not ours")
	}
	several := []headgate.Limit{headgate.PerSecond(1_000_000), headgate.PerHour(1_000_000_000)}
	checks := []headgate.Check{
		{Rule: headgate.MustRule("one", headgate.PerSecond(1_000_000)), Key: "k"},
		{Rule: headgate.MustRule("two", several...), Key: "k"},
	}
	for _, onError := range []headgate.OnError{headgate.OnErrorAllow, headgate.OnErrorLocal} {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: onError, Nodes: 2})
		store := f.Store()
		dst := make([]headgate.Decision, 0, 8)
		measure := func() float64 {
			return testing.AllocsPerRun(2000, func() {
				if _, err := store.Take(context.Background(), headgate.OpTake, checks, dst); err != nil {
					t.Fatal(err)
				}
			})
		}
		if got := measure(); got != 0 && !race.Enabled {
			t.Errorf("%v: %v allocations while the store is well", onError, got)
		}
		layertest.Fail(t, f, primary, layertest.Refuses)
		if got := measure(); got != 0 && !race.Enabled {
			t.Errorf("%v: %v allocations while it is gone", onError, got)
		}
	}
}

// TestTogether has many callers, a store that comes and goes, and nodes that do: for
// the race detector, and for what may never happen.
func TestTogether(t *testing.T) {
	primary := layertest.NewScripted()
	f := layertest.Fallback(t, primary, fallback.Options{
		Default: headgate.OnErrorLocal, Nodes: 2, Ramp: 5 * time.Millisecond, MaxRetry: firstRetry, Beat: 10 * time.Millisecond, Debts: 8, Learn: 20 * time.Millisecond,
	})
	store := f.Store().(headgate.Ledger)
	rules := []*headgate.Rule{
		headgate.MustRule("a", headgate.PerSecond(1000), headgate.Sliding(100_000, time.Hour)),
		headgate.MustRule("b", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Period: time.Second}),
	}
	var stop atomic.Bool
	var all sync.WaitGroup
	var local, stored, rounds atomic.Int64
	for i := range 8 {
		all.Go(func() {
			var dst []headgate.Decision
			reserved := int64(0)
			for n := 0; !stop.Load(); n++ {
				checks := []headgate.Check{{Rule: rules[0], Key: string('a' + rune(n%16))}, {Rule: rules[1], Key: "k", Shadow: n%3 == 0}}
				var err error
				switch {
				// The stores remember what was reserved for some minutes, also when it is settled. They
				// are the smallest ones, and have room for some 240 reservations: 8 callers make 184 at most.
				case n%50 == 0 && reserved <= 2*rounds.Load():
					var r headgate.Reservation
					reserved++
					if r, dst, err = store.Reserve(t.Context(), headgate.Terms{}, checks, dst[:0]); err == nil && r.ID != "" {
						_, _ = store.Settle(t.Context(), r, make([]int64, len(r.Checks)), nil)
					}
				case n%20 == i:
					dst, err = store.Take(t.Context(), headgate.OpRefund, checks, dst[:0])
				default:
					dst, err = store.Take(t.Context(), headgate.OpTake, checks, dst[:0])
				}
				if err != nil {
					t.Errorf("got %v", err)
					return
				}
				if len(dst) != 3 {
					t.Errorf("%d decisions", len(dst))
					return
				}
				switch dst[0].Source {
				case headgate.SourceLocal:
					local.Add(1)
				case headgate.SourceStore:
					stored.Add(1)
				}
			}
		})
	}
	for round := range 12 {
		rounds.Store(int64(round))
		primary.Feel(layertest.Health(round % 3))
		if round%4 == 0 {
			primary.Join(round, 50*time.Millisecond)
		}
		until := time.Now().Add(5 * time.Second)
		for want := round%3 != 0; time.Now().Before(until) && (f.Stats().State != fallback.Closed) != want; {
			time.Sleep(time.Millisecond)
		}
	}
	stop.Store(true)
	all.Wait()
	if local.Load() == 0 || stored.Load() == 0 {
		t.Errorf("%d requests were decided locally, %d by the store", local.Load(), stored.Load())
	}
}

const firstRetry = 20 * time.Millisecond

// BenchmarkTake is what the layer costs: nothing that is decided locally needs to
// be charged, or everything.
func BenchmarkTake(b *testing.B) {
	one := []headgate.Check{{Rule: headgate.MustRule("one", headgate.PerSecond(1_000_000_000)), Key: "k"}}
	two := []headgate.Check{
		{Rule: headgate.MustRule("two", headgate.PerSecond(1_000_000_000), headgate.PerHour(1_000_000_000)), Key: "k"},
		{Rule: headgate.MustRule("three", headgate.PerSecond(1_000_000_000), headgate.PerHour(1_000_000_000)), Key: "k2"},
	}
	for _, c := range []struct {
		name    string
		onError headgate.OnError
		checks  []headgate.Check
		bare    bool
	}{
		{"one/bare", 0, one, true},
		{"one/deny", headgate.OnErrorDeny, one, false},
		{"one/local", headgate.OnErrorLocal, one, false},
		{"two of two/bare", 0, two, true},
		{"two of two/local", headgate.OnErrorLocal, two, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			f, err := fallback.New(memory.New(), fallback.Options{Local: memory.New(), Default: c.onError, Nodes: 4})
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close(b.Context())
			store := f.Store()
			if c.bare {
				store = memory.New()
			}
			dst := make([]headgate.Decision, 0, 8)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := store.Take(context.Background(), headgate.OpTake, c.checks, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
