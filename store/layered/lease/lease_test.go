package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/layered/lease"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestLeaseConformance: rules that are not leased are decided as the store decides,
// ledger included.
func TestLeaseConformance(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock func() int64) headgate.Store {
		return open(t, memory.New(memory.Clock(clock)), lease.Options{}).Store()
	})
}

// inLeases asks for every check as if its rule were leased.
type inLeases struct{ headgate.Store }

func (s inLeases) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	checks = append([]headgate.Check(nil), checks...)
	for i := range checks {
		checks[i].Consistency = headgate.Leased
	}
	return s.Store.Take(ctx, op, checks, dst)
}

// TestLeaseConformanceOfRulesThatCannotBe: rules that say leased, and whose limits
// are too small for it, are decided as the store decides. Those of the vectors are.
func TestLeaseConformanceOfRulesThatCannotBe(t *testing.T) {
	for _, l := range []headgate.Limit{
		headgate.PerSecond(9), headgate.Per(1000, 100*time.Millisecond), headgate.Sliding(9, time.Hour),
		headgate.Sliding(1000, headgate.MaxPeriod), headgate.PerSecond(1000).WithBurst(100),
		{Algorithm: headgate.LeakyBucket, Count: 1000, Period: time.Minute},
		{Algorithm: headgate.FixedWindow, Count: 5, Period: time.Minute},
	} {
		rule := headgate.MustRule("r", l)
		clock := storetest.NewClock(time.Now())
		plain := memory.New(memory.Clock(clock.Now))
		lease := open(t, memory.New(memory.Clock(clock.Now)), lease.Options{})
		if lease.Enforced(rule) != rule {
			t.Errorf("%v is enforced as %v", rule, lease.Enforced(rule))
		}
		for i := range 300 {
			check := []headgate.Check{{Rule: rule, Key: "k", Cost: int64(1 + i%3)}}
			want, err := plain.Take(t.Context(), headgate.OpTake, check, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := inLeases{lease.Store()}.Take(t.Context(), headgate.OpTake, check, nil)
			if err != nil || len(got) != 1 || got[0] != want[0] {
				t.Fatalf("%v: got %+v, %v, want %+v", rule, got, err, want)
			}
			clock.Add(time.Millisecond)
		}
	}
}

// open makes a lease that ends with the test.
func open(t testing.TB, store headgate.Store, o lease.Options) *lease.Layer {
	l := openUnclosed(t, store, o)
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// openUnclosed makes a lease that the test closes.
func openUnclosed(t testing.TB, store headgate.Store, o lease.Options) *lease.Layer {
	t.Helper()
	l, err := lease.New(store, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLeaseEnforces holds the stricter rules against the documented formulas.
func TestLeaseEnforces(t *testing.T) {
	l := open(t, layertest.NewScripted(), lease.Options{})
	for _, c := range []struct{ rule, want []headgate.Limit }{
		{[]headgate.Limit{headgate.PerSecond(1000)}, []headgate.Limit{headgate.PerSecond(1000).WithBurst(980)}},
		// A second at most: 500 units of a bucket that takes 100 s to fill.
		{[]headgate.Limit{headgate.PerSecond(500).WithBurst(50_000)}, []headgate.Limit{headgate.PerSecond(500).WithBurst(49_500)}},
		{[]headgate.Limit{headgate.Per(7, time.Second).WithBurst(100)}, []headgate.Limit{headgate.Per(7, time.Second).WithBurst(98)}},
		{[]headgate.Limit{headgate.Sliding(600, 10*time.Minute)}, []headgate.Limit{headgate.Sliding(600, 10*time.Minute+time.Second)}},
		{
			[]headgate.Limit{headgate.Sliding(600, 10*time.Minute), headgate.Sliding(30, 20*time.Second)},
			[]headgate.Limit{headgate.Sliding(600, 10*time.Minute+400*time.Millisecond), headgate.Sliding(30, 20*time.Second+400*time.Millisecond)},
		},
		{
			[]headgate.Limit{{Algorithm: headgate.FixedWindow, Count: 100, Align: headgate.AlignMonth}},
			[]headgate.Limit{{Algorithm: headgate.FixedWindow, Count: 100, Align: headgate.AlignMonth}},
		},
		{
			[]headgate.Limit{{Algorithm: headgate.SlidingCounter, Count: 100, Period: time.Second}, headgate.PerSecond(1000)},
			[]headgate.Limit{{Algorithm: headgate.SlidingCounter, Count: 100, Period: time.Second}, headgate.PerSecond(1000).WithBurst(980)},
		},
	} {
		rule, err := headgate.MustRule("r", c.rule...).WithTag("tag")
		if err != nil {
			t.Fatal(err)
		}
		want, err := headgate.MustRule("r", c.want...).WithTag("tag")
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Enforced(rule); got.String() != want.String() || got.Tag() != "tag" || got == rule {
			t.Errorf("%v is enforced as %v, want %v", rule, got, want)
		}
	}
}

// hot asks for single units, a little faster than a key must be asked for to be
// leased, and returns the decisions' sources.
func hot(t *testing.T, s headgate.Store, c headgate.Check, n int) (sources map[headgate.Source]int) {
	t.Helper()
	sources = map[headgate.Source]int{}
	for range n {
		d, err := s.Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d[0].Rule != c.Rule || d[0].Limit != &c.Rule.Limits()[0] && d[0].Source != headgate.SourceLocal {
			t.Fatalf("a decision of %v, %v", d[0].Rule, d[0].Limit)
		}
		sources[d[0].Source]++
		time.Sleep(100 * time.Microsecond)
	}
	return sources
}

func TestLeaseServesHotKeys(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := layertest.NewScripted()
		l := open(t, store, lease.Options{})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(100_000)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}
		sources := hot(t, l.Store(), c, 2000)
		if sources[headgate.SourceLease] < 1900 || sources[headgate.SourceStore] < 8 {
			t.Errorf("decided by: %v", sources)
		}
		if calls := store.Calls.Load(); calls > 200 {
			t.Errorf("%d calls for 2000 requests", calls)
		}
		s := l.Stats()
		if s.Keys != 1 || s.Served != int64(sources[headgate.SourceLease]) || s.Leases == 0 || s.Taken < s.Served || s.Held == 0 {
			t.Errorf("stats: %+v", s)
		}
		// Nobody asks any more: what is held goes back, and the key is forgotten.
		time.Sleep(10 * time.Second)
		if s := l.Stats(); s.Keys != 0 || s.Held != 0 {
			t.Errorf("after a while: %+v", s)
		}
	})
}

// TestLeaseLeavesColdKeysAlone: a key that is asked for now and then is decided by the
// store, one call for each request.
func TestLeaseLeavesColdKeysAlone(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := layertest.NewScripted()
		l := open(t, store, lease.Options{})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1000)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}
		for range 300 {
			layertest.Take(t, l.Store(), c)
			time.Sleep(5 * time.Millisecond)
		}
		if calls := store.Calls.Load(); calls != 300 || l.Stats().Keys != 0 {
			t.Errorf("%d calls for 300 requests; %+v", calls, l.Stats())
		}
	})
}

// TestLeaseGivesBack: what is not used comes back, of windows all of it, of buckets
// what they have not refilled.
func TestLeaseGivesBack(t *testing.T) {
	for name, limits := range map[string][]headgate.Limit{
		"fixed window":   {{Algorithm: headgate.FixedWindow, Count: 10_000, Period: time.Hour}},
		"sliding window": {headgate.Sliding(10_000, time.Hour)},
		"counter":        {{Algorithm: headgate.SlidingCounter, Count: 10_000, Period: time.Hour}},
		"bucket":         {headgate.Per(10_000, 300*24*time.Hour)},
		"both": {
			headgate.Per(10_000, 300*24*time.Hour), {Algorithm: headgate.FixedWindow, Count: 10_000, Period: time.Hour},
		},
	} {
		for _, closes := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " close ", closes), func(t *testing.T) {
				bubbletest.Test(t, func(t *testing.T) {
					store := memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() }))
					l := openUnclosed(t, store, lease.Options{})
					rule := headgate.MustRule("r", limits...)
					hot(t, l.Store(), headgate.Check{Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}, 1000)
					if s := l.Stats(); s.Held == 0 {
						t.Fatalf("nothing is held: %+v", s)
					}
					peeked, err := l.Store().Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}}, nil)
					if err != nil {
						t.Fatal(err)
					}
					for _, d := range peeked {
						if want := l.Enforced(rule).Limits()[0].Capacity() - 1000; d.Remaining != want && name != "both" {
							t.Errorf("peek: %d remaining, want %d: %+v", d.Remaining, want, d)
						}
					}
					if closes {
						if err := l.Close(t.Context()); err != nil {
							t.Error(err)
						}
					} else {
						time.Sleep(1500 * time.Millisecond)
					}
					left, err := store.Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: l.Enforced(rule), Key: "k"}}, nil)
					if err != nil {
						t.Fatal(err)
					}
					for _, d := range left {
						if got := d.Limit.Capacity() - d.Remaining; got < 1000 || got > 1000+l.Stats().Lost+part(d.Limit) {
							t.Errorf("%v: %d in use for 1000 admissions; %+v", d.Limit, got, l.Stats())
						}
					}
					if s := l.Stats(); s.Held != 0 || s.Returned == 0 {
						t.Errorf("stats: %+v", s)
					}
					if err := l.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestLeaseGivesNothingBackTwice: what a bucket has refilled since it was charged is
// free already, and others may have used it when the lease comes back.
func TestLeaseGivesNothingBackTwice(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() }))
		l := open(t, store, lease.Options{})
		rule := headgate.MustRule("r", headgate.PerSecond(10_000))
		hot(t, l.Store(), headgate.Check{Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}, 300)
		if l.HeldOf(rule, "k") == 0 {
			t.Fatal("nothing is held")
		}
		time.Sleep(10 * time.Millisecond) // in which a hundred units are refilled, more than are held
		all := []headgate.Check{{Rule: l.Enforced(rule), Key: "k"}}
		free, err := store.Take(t.Context(), headgate.OpPeek, all, nil)
		if err != nil {
			t.Fatal(err)
		}
		all[0].Cost = free[0].Remaining
		if !layertest.Take(t, store, all[0]).Allowed {
			t.Fatal("what remains is denied")
		}
		time.Sleep(20 * time.Millisecond)
		if held := l.HeldOf(rule, "k"); held != 0 {
			t.Fatalf("%d are still held", held)
		}
		bubbletest.Wait()
		now, err := store.Take(t.Context(), headgate.OpPeek, all, nil)
		if err != nil || now[0].Remaining > 200 {
			t.Errorf("%d are free when 200 were refilled; %v", now[0].Remaining, err)
		}
	})
}

// part is how many units a bucket may keep because parts of units are not given back.
func part(l *headgate.Limit) int64 {
	if l.Algorithm == headgate.TokenBucket {
		return 4
	}
	return 0
}

// TestLeaseIsAllOrNothing: a request that a strict check denies uses nothing of what
// is held.
func TestLeaseIsAllOrNothing(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() }))
		l := open(t, store, lease.Options{})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 100_000, Period: time.Hour}), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}
		hot(t, l.Store(), c, 1000)
		other := headgate.Check{Rule: headgate.MustRule("strict", headgate.Sliding(5, time.Hour)), Key: "k"}
		for i := range 50 {
			out, err := l.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c, other}, nil)
			if err != nil || len(out) != 2 || out[0].Rule != c.Rule || out[1].Rule != other.Rule || out[1].Check != 1 || !out[0].Allowed || out[1].Allowed != (i < 5) {
				t.Fatalf("request %d: %+v, %v", i, out, err)
			}
		}
		time.Sleep(3 * time.Second)
		left, err := store.Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil)
		if err != nil || left[0].Remaining != 100_000-1005 {
			t.Errorf("%d remaining, want %d; %v", left[0].Remaining, 100_000-1005, err)
		}
	})
}

// TestLeaseReset: what is held of a key that is reset is not used any more.
func TestLeaseReset(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() }))
		l := open(t, store, lease.Options{})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Period: time.Hour}), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}
		hot(t, l.Store(), c, 300)
		if l.HeldOf(c.Rule, "k") == 0 {
			t.Fatal("nothing is held")
		}
		if _, err := l.Store().Take(t.Context(), headgate.OpReset, []headgate.Check{{Rule: c.Rule, Key: "k"}}, nil); err != nil {
			t.Fatal(err)
		}
		if held := l.HeldOf(c.Rule, "k"); held != 0 {
			t.Errorf("%d are held after a reset", held)
		}
		if got := layertest.Spend(t, l.Store(), c); got != 1000 {
			t.Errorf("%d admitted after a reset, want 1000", got)
		}
	})
}

// TestLeaseWaits: callers who find nothing wait for the one call that is under way,
// each until its own deadline.
func TestLeaseWaits(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := layertest.NewScripted()
		l := openUnclosed(t, store, lease.Options{})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Per(1_000_000, time.Minute)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}
		hot(t, l.Store(), c, 2000)
		store.Feel(layertest.Hangs)
		for l.HeldOf(c.Rule, "k") > 0 {
			layertest.Take(t, l.Store(), c)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := l.Store().Take(ctx, headgate.OpTake, []headgate.Check{c}, nil)
		if !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		store.Feel(layertest.Well)
		time.Sleep(time.Second)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLeaseInvalid(t *testing.T) {
	l := open(t, layertest.NewScripted(), lease.Options{})
	rule := headgate.MustRule("r", headgate.PerSecond(1000))
	for op, checks := range map[headgate.Op][]headgate.Check{
		headgate.OpTake:  {{Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}, {Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}},
		headgate.OpReset: {{Rule: rule, Key: strings.Repeat("k", headgate.MaxKey+1), Hints: headgate.Hints{Consistency: headgate.Leased}}},
		headgate.OpPeek:  {{Hints: headgate.Hints{Consistency: headgate.Leased}}},
	} {
		if _, err := l.Store().Take(t.Context(), op, checks, nil); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%v: %v", op, err)
		}
	}
}

// TestLeaseLedger: requests that are remembered are decided by the store, under the
// rule that is enforced, and told under the caller's.
func TestLeaseLedger(t *testing.T) {
	l, ok := open(t, layertest.NewScripted(), lease.Options{}).Store().(headgate.Ledger)
	if !ok {
		t.Fatal("it is no ledger")
	}
	rule := headgate.MustRule("r", headgate.Per(1000, 300*24*time.Hour))
	checks := []headgate.Check{{Rule: rule, Key: "k", Cost: 4, Hints: headgate.Hints{Consistency: headgate.Leased}}}
	for range 2 {
		d, err := l.TakeOnce(t.Context(), headgate.Terms{ID: "one"}, checks, nil)
		if err != nil || d[0].Rule != rule || d[0].Limit != &rule.Limits()[0] || d[0].Remaining != 999-4 {
			t.Fatalf("once: %+v, %v", d, err)
		}
	}
	r, d, err := l.Reserve(t.Context(), headgate.Terms{}, checks, nil)
	if err != nil || d[0].Remaining != 999-8 || len(r.Checks) != 1 || r.Checks[0].Rule != rule {
		t.Fatalf("reserve: %+v, %+v, %v", r, d, err)
	}
	if again, err := l.Recall(t.Context(), r.ID); err != nil || again.ID != r.ID {
		t.Errorf("recall: %+v, %v", again, err)
	}
	if d, err := l.Settle(t.Context(), r, []int64{1}, nil); err != nil || d[0].Rule != rule || d[0].Remaining != 999-5 {
		t.Errorf("settle: %+v, %v", d, err)
	}
	if _, err := l.TakeOnce(t.Context(), headgate.Terms{}, checks, nil); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("without an id: %v", err)
	}
}

// TestLeaseTogether has many callers on several leases around one store, by the
// machine's own clock: for the race detector, and never a unit too many.
func TestLeaseTogether(t *testing.T) {
	store := memory.New()
	rule := headgate.MustRule("r", headgate.PerSecond(5_000), headgate.Sliding(8_000, 2*time.Second))
	began := time.Now()
	var admitted atomic.Int64
	var all sync.WaitGroup
	for n := range 4 {
		l := openUnclosed(t, store, lease.Options{Nodes: func() int64 { return 4 }, MaxKeys: 64})
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				var dst []headgate.Decision
				for i := range 4000 {
					c := headgate.Check{Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}
					op := headgate.OpTake
					if i%500 == 499 {
						op = headgate.OpPeek
					}
					out, err := l.Store().Take(context.Background(), op, []headgate.Check{c}, dst[:0])
					if err != nil {
						t.Error(err)
						return
					}
					if op == headgate.OpTake && headgate.NewVerdict(out).Allowed {
						admitted.Add(1)
					}
					dst = out
				}
			})
		}
		all.Go(func() {
			if n == 0 {
				// One ends while it is in use.
				time.Sleep(20 * time.Millisecond)
				if err := l.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}
			callers.Wait()
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	if most := 5_000 + int64(5_000*took.Seconds()); admitted.Load() > most {
		t.Errorf("%d were admitted in %v, at most %d may be", admitted.Load(), took, most)
	}
	if windows := int64(took/(2*time.Second)) + 1; admitted.Load() > 8_000*windows {
		t.Errorf("%d were admitted in %v, at most %d may be", admitted.Load(), took, 8_000*windows)
	}
}

// TestLeaseAllocations: a request that is decided from a lease allocates nothing.
func TestLeaseAllocations(t *testing.T) {
	if race.Enabled {
		t.Log("the race detector makes sync.Pool forget; its allocations are not ours")
	}
	l := open(t, instantStore{}, lease.Options{})
	checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerSecond(100_000_000)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}}
	dst := make([]headgate.Decision, 0, 4)
	got := testing.AllocsPerRun(50_000, func() {
		if _, err := l.Store().Take(context.Background(), headgate.OpTake, checks, dst); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 && !race.Enabled {
		t.Errorf("%v allocations", got)
	}
}

// TestLeaseSteadyLoad: leases cost nothing where a limit is not in the way: of a
// steady load of nine tenths of it, at random times on four nodes, hardly anything is
// denied.
func TestLeaseSteadyLoad(t *testing.T) {
	for name, limit := range map[string]headgate.Limit{
		"bucket": headgate.PerSecond(4000), "sliding window": headgate.Sliding(4000, time.Second),
		"fixed window": {Algorithm: headgate.FixedWindow, Count: 4000, Period: time.Second},
		"counter":      {Algorithm: headgate.SlidingCounter, Count: 4000, Period: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				const nodes, each = 4, 900
				asked := each * max(3, race.Fewer(10)) // of each node
				store := memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() }))
				rule := headgate.MustRule("r", limit)
				var denied, served atomic.Int64
				var all sync.WaitGroup
				for n := range nodes {
					l := openUnclosed(t, store, lease.Options{Nodes: func() int64 { return nodes }})
					all.Go(func() {
						r := rand.New(rand.NewPCG(1, uint64(n)))
						for range asked {
							time.Sleep(time.Duration(r.ExpFloat64() * float64(time.Second) / each))
							if !layertest.Take(t, l.Store(), headgate.Check{Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}).Allowed {
								denied.Add(1)
							}
						}
						served.Add(l.Stats().Served)
						if err := l.Close(context.Background()); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				t.Logf("%d denied, %d served from leases, of %d", denied.Load(), served.Load(), nodes*asked)
				if denied.Load() > int64(nodes*asked/200) {
					t.Errorf("%d of %d were denied", denied.Load(), nodes*asked)
				}
				if served.Load() < int64(nodes*asked/2) {
					t.Errorf("only %d of %d were served from leases", served.Load(), nodes*asked)
				}
			})
		})
	}
}
