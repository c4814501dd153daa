//go:build !race

// The tests of this file fill stores from one goroutine, where the race detector has nothing to
// find. `make test` runs this package without the detector as well.

package memory_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// crowd takes one unit for each of n keys that nobody else uses, so that memory
// fills up. Their limit is a rule's of its own.
func crowd(t *testing.T, s *memory.Store, rule *headgate.Rule, n int) {
	t.Helper()
	for i := range n {
		take(t, s, headgate.OpTake, headgate.Check{Rule: rule, Key: fmt.Sprintf("crowd %d", i)})
	}
}

// both runs a test with small stores of both clocks.
func both(t *testing.T, name string, test func(t *testing.T, s *memory.Store, clock *storetest.Clock)) {
	for as, clocked := range clocks {
		t.Run(name+", "+as, func(t *testing.T) {
			s, clock := smallBy(clocked)
			test(t, s, clock)
		})
	}
}

// crowded is more keys than the smallest store has room for.
const crowded = 40_000

// crowdRule keeps a counter in use for a month after one unit.
var crowdRule = headgate.MustRule("crowd", headgate.Per(1, 30*24*time.Hour).WithBurst(1000))

// TestFullNeverAdmitsMore fills the store with keys that each try to get more than
// their limit, through every algorithm.
func TestFullNeverAdmitsMore(t *testing.T) {
	const limit = 3
	for name, limits := range map[string][]headgate.Limit{
		"token_bucket":    {headgate.PerHour(limit)},
		"leaky_bucket":    {{Algorithm: headgate.LeakyBucket, Count: limit, Period: time.Hour}},
		"fixed_window":    {{Algorithm: headgate.FixedWindow, Count: limit, Period: time.Hour, Align: headgate.AlignFirst}},
		"sliding_window":  {headgate.Sliding(limit, time.Hour), headgate.Sliding(limit, time.Minute)},
		"sliding_counter": {{Algorithm: headgate.SlidingCounter, Count: limit, Period: time.Hour}},
		"several":         {headgate.PerHour(limit), headgate.Sliding(limit+1, time.Hour), headgate.PerSecond(limit)},
	} {
		both(t, name, func(t *testing.T, s *memory.Store, clock *storetest.Clock) {
			r := headgate.MustRule("r", limits...)
			const keys = 35_000
			admitted := make([]int, keys)
			for round := range 2 {
				for k := range keys {
					for range limit {
						if take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: fmt.Sprint(k)}).Allowed {
							admitted[k]++
						}
					}
				}
				clock.Add(time.Duration(round) * time.Second)
			}
			for k, n := range admitted {
				if n > limit {
					t.Fatalf("key %d was admitted %d units, its limit is %d", k, n, limit)
				}
			}
			stats := s.Stats()
			if stats.Shared == 0 {
				t.Errorf("%+v: nothing was shared; the test does not fill the store", stats)
			}
			if most := int64(memory.MinMaxBytes * 5 / 4); stats.Bytes > most {
				t.Errorf("%d bytes are in use, want at most %d: the bound and a quarter", stats.Bytes, most)
			}
		})
	}
}

// TestFullKeepsOwnCounters: a key whose rule has several limits keeps each counter
// that is in use, though another one of the rule became free and was dropped.
func TestFullKeepsOwnCounters(t *testing.T) {
	s, clock := small()
	r := headgate.MustRule("r", headgate.PerHour(5), headgate.PerSecond(5))
	for i := range 200 {
		take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: fmt.Sprint(i), Cost: 5})
	}
	clock.Add(5 * time.Minute) // five twelfths of a unit of the hour are back, and all of the second
	crowd(t, s, crowdRule, crowded)
	for i := range 200 {
		if v := take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: fmt.Sprint(i)}); v.Allowed {
			t.Fatalf("key %d has used its hour's limit, and is admitted when memory is full: %v", i, v)
		}
	}
}

// TestFullKeepsCountersOfChangedRules is the same for a limit that was added.
func TestFullKeepsCountersOfChangedRules(t *testing.T) {
	s, _ := small()
	was, is := headgate.MustRule("r", headgate.PerHour(5)), headgate.MustRule("r", headgate.PerHour(5), headgate.Per(100, 24*time.Hour))
	for i := range 200 {
		take(t, s, headgate.OpTake, headgate.Check{Rule: was, Key: fmt.Sprint(i), Cost: 5})
	}
	crowd(t, s, crowdRule, crowded)
	for i := range 200 {
		if v := take(t, s, headgate.OpTake, headgate.Check{Rule: is, Key: fmt.Sprint(i)}); v.Allowed {
			t.Fatalf("key %d has used its limit, and is admitted because the rule got another: %v", i, v)
		}
	}
}

// TestRoomAfterFull: when memory is free again, a key that shared a counter gets
// one of its own, in which what it used is still used.
func TestRoomAfterFull(t *testing.T) {
	for name, limits := range map[string][]headgate.Limit{
		"token_bucket":   {headgate.Per(5, 100*time.Hour)},
		"sliding_window": {headgate.Sliding(5, 100*time.Hour)},
		"both":           {headgate.Sliding(5, 100*time.Hour), headgate.Per(6, 100*time.Hour)},
	} {
		both(t, name, func(t *testing.T, s *memory.Store, clock *storetest.Clock) {
			crowd(t, s, headgate.MustRule("brief", headgate.PerMinute(1)), crowded)
			r := headgate.MustRule("r", limits...)
			admitted := map[string]int{}
			try := func() {
				for i := range 3000 {
					key := fmt.Sprint(i)
					for range 5 {
						if take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: key}).Allowed {
							admitted[key]++
						}
					}
				}
			}
			try()
			shared := s.Stats().Shared
			if shared == 0 {
				t.Fatal("nothing was shared; the test does not fill the store")
			}
			clock.Add(10 * time.Minute) // the crowd is idle
			try()
			clock.Add(10 * time.Minute)
			try()
			for key, n := range admitted {
				if n > 5 {
					t.Fatalf("key %s was admitted %d units, its limit is 5", key, n)
				}
			}
			clock.Add(200 * time.Hour) // all are idle
			for i := range 3000 {
				if v := take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: fmt.Sprint(i), Cost: 5}); !v.Allowed {
					t.Fatalf("key %d is denied in an empty store: %v", i, v)
				}
			}
		})
	}
}

// TestFullRefund: a refund for a key without a counter of its own must not free
// what others have used of the shared one.
func TestFullRefund(t *testing.T) {
	s, clock := small()
	r := headgate.MustRule("r", headgate.PerHour(5))
	took := take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: "early", Cost: 5})
	clock.Add(3 * time.Hour) // its counter is free, and will be dropped
	crowd(t, s, crowdRule, crowded)
	before := s.Stats().Counters
	admitted := 0
	for i := range 20_000 {
		if take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: fmt.Sprint(i)}).Allowed {
			admitted++
		}
		take(t, s, headgate.OpRefund, headgate.Check{Rule: r, Key: "early", Cost: 5, At: took.Decisions[0].At})
	}
	// No more than five for each of four shared counters in each of 256 parts, and
	// one for each key that still found room for a counter of its own.
	if most := 5*4*256 + s.Stats().Counters - before; admitted > most {
		t.Errorf("%d units were admitted on shared counters, want at most %d", admitted, most)
	}
}

// TestSharesSpread: new keys of one rule share more counters than one or two in
// each part of the store.
func TestSharesSpread(t *testing.T) {
	s, _ := small()
	crowd(t, s, crowdRule, crowded)
	r := headgate.MustRule("r", headgate.PerHour(1))
	admitted := 0
	for i := range 50_000 {
		if take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: fmt.Sprint(i)}).Allowed {
			admitted++
		}
	}
	if admitted < 4*256 {
		t.Errorf("%d of 50,000 keys were admitted in a full store, want one for each of four counters in each of 256 parts", admitted)
	}
}

// TestRequestsDoNotFill: the room that a large request asks for is what it needs,
// not the same again in every part that it touches.
func TestRequestsDoNotFill(t *testing.T) {
	s, _ := small()
	limits := make([]headgate.Limit, headgate.MaxLimits)
	for i := range limits {
		limits[i] = headgate.Per(9, time.Duration(i+1)*time.Hour)
	}
	r := headgate.MustRule("r", limits...)
	checks := make([]headgate.Check, headgate.MaxChecks)
	for i := range checks {
		checks[i] = headgate.Check{Rule: r, Key: fmt.Sprint(i)}
	}
	take(t, s, headgate.OpTake, checks...)
	if stats := s.Stats(); stats.Shared != 0 || stats.Counters != headgate.MaxChecks*headgate.MaxLimits || stats.Bytes > memory.MinMaxBytes {
		t.Errorf("%+v after a request of 1,024 limits in an empty store; want that many counters, none shared, within %d bytes", stats, memory.MinMaxBytes)
	}
}

// TestFullRequestOfManyKeys: keys of one request that share a counter are all
// charged to it.
func TestFullRequestOfManyKeys(t *testing.T) {
	s, _ := small()
	crowd(t, s, crowdRule, crowded)
	for name, l := range map[string]headgate.Limit{
		"bucket": headgate.PerHour(headgate.MaxCount),
		"window": headgate.Sliding(headgate.MaxLog, time.Hour),
	} {
		r := headgate.MustRule(name, l)
		checks := make([]headgate.Check, headgate.MaxChecks)
		admitted := make([]int64, len(checks))
		for round := range 4 {
			for i := range checks {
				checks[i] = headgate.Check{Rule: r, Key: fmt.Sprint(i), Cost: l.Count/2 - int64(round*i)}
			}
			if take(t, s, headgate.OpTake, checks...).Allowed {
				for i := range checks {
					admitted[i] += checks[i].Cost
				}
			}
			for i := range checks {
				if take(t, s, headgate.OpTake, checks[i]).Allowed {
					admitted[i] += checks[i].Cost
				}
			}
		}
		for i, n := range admitted {
			if n > l.Count {
				t.Errorf("%s: key %d was admitted %d units, its limit is %d", name, i, n, l.Count)
			}
		}
	}
	if s.Stats().Shared == 0 {
		t.Error("nothing was shared; the test does not fill the store")
	}
}

// TestReclaimsFromOtherKeys: the idle logs of keys that do not come back make room
// for those of the few that do, wherever in the store they are.
func TestReclaimsFromOtherKeys(t *testing.T) {
	s, clock := small()
	flood := headgate.MustRule("flood", headgate.Sliding(100, time.Minute))
	for i := range 40_000 {
		take(t, s, headgate.OpTake, headgate.Check{Rule: flood, Key: fmt.Sprint(i)})
	}
	if s.Stats().Shared == 0 {
		t.Fatal("nothing was shared; the test does not fill the store")
	}
	clock.Add(10 * time.Minute)
	r := headgate.MustRule("r", headgate.Sliding(30_000, 100*time.Hour))
	use := func(n int) memory.Stats {
		for range n {
			clock.Add(time.Second)
			take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: "regular"})
		}
		return s.Stats()
	}
	before := use(20_000)
	after := use(1000)
	if after.Shared != before.Shared || after.Merged != before.Merged {
		t.Errorf("%+v, it was %+v; want no log shared or merged while others are idle", after, before)
	}
}

// TestChargesAreBounded: units that are charged whether they fit or not take no more
// memory than others.
func TestChargesAreBounded(t *testing.T) {
	s, clock := small()
	check := headgate.Check{Rule: headgate.MustRule("r", headgate.Sliding(1, time.Hour)), Key: "k"}
	for range 150_000 {
		clock.Add(time.Microsecond)
		take(t, s, headgate.OpCharge, check)
	}
	if stats := s.Stats(); stats.Merged == 0 || stats.Bytes > memory.MinMaxBytes*5/4 {
		t.Errorf("%+v after 150,000 charges, want some of them merged and at most %d bytes", stats, memory.MinMaxBytes*5/4)
	}
	clock.Add(time.Hour - time.Microsecond)
	if take(t, s, headgate.OpPeek, check).Allowed {
		t.Error("the newest units are free before an hour has passed")
	}
	clock.Add(time.Microsecond)
	if !take(t, s, headgate.OpPeek, check).Allowed {
		t.Error("the newest units are not free when an hour has passed")
	}
}

// TestRoomAfterFullCharge: what a key was charged while it shared a counter is used of
// its own, too, whether it was asked for first or not.
func TestRoomAfterFullCharge(t *testing.T) {
	for name, limit := range map[string]headgate.Limit{
		"token_bucket":   headgate.Per(5, 100*time.Hour),
		"sliding_window": headgate.Sliding(5, 100*time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			s, clock := small()
			crowd(t, s, headgate.MustRule("brief", headgate.PerMinute(1)), crowded)
			check := headgate.Check{Rule: headgate.MustRule("r", limit), Key: "k", Cost: 5}
			before := s.Stats().Shared
			take(t, s, headgate.OpCharge, check)
			if s.Stats().Shared == before {
				t.Fatal("the key shares no counter; the test does not fill the store")
			}
			clock.Add(10 * time.Minute) // the crowd is idle
			crowd(t, s, headgate.MustRule("after", headgate.PerMinute(1)), 2000)
			check.Cost = 1
			if v := take(t, s, headgate.OpTake, check); v.Allowed {
				t.Errorf("the key has used its limit, and is admitted once memory is free: %+v", v)
			}
		})
	}
}

// TestBytesAKey: a key takes at most 48 bytes, however many there are.
func TestBytesAKey(t *testing.T) {
	s := memory.New()
	l := headgate.New(s, crowdRule)
	worst := 0.0
	for i := range 300_000 {
		if _, err := l.Allow(context.Background(), strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		if i > 30_000 && i%1000 == 0 {
			worst = max(worst, float64(s.Stats().Bytes)/float64(i+1))
		}
	}
	if t.Logf("%.1f bytes a key at most", worst); worst > 48 {
		t.Errorf("%.1f bytes a key, want 48 at most", worst)
	}
}

// TestIdleCountersAreDropped: memory follows what is in use, up and down.
func TestIdleCountersAreDropped(t *testing.T) {
	clock := storetest.NewClock(storetest.Epoch)
	s := memory.New(memory.Clock(clock.Now))
	r := headgate.MustRule("r", headgate.PerSecond(1), headgate.Sliding(10, time.Second))
	const keys = 100_000
	for i := range keys {
		take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: fmt.Sprint(i)})
	}
	full := s.Stats()
	if full.Counters != 2*keys || full.Logs != keys || full.Shared+full.Merged != 0 {
		t.Fatalf("%+v after %d keys with a bucket and a log each", full, keys)
	}
	if perKey := full.Bytes / keys; perKey > 300 {
		t.Errorf("%d bytes a key with a bucket and a log, want at most 300", perKey)
	}
	for range 3 {
		clock.Add(2 * time.Minute)
		for i := range 5000 { // a few in each part of the store
			take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: fmt.Sprint("new ", i)})
		}
	}
	if idle := s.Stats(); idle.Counters > 20_000 || idle.Logs > 10_000 || idle.Bytes > full.Bytes/10 {
		t.Errorf("%+v when 5,000 keys are in use, it was %+v", idle, full)
	}
}

// TestChargeWhenFull: keys that share counters do not overdraw them.
func TestChargeWhenFull(t *testing.T) {
	s := memory.New(memory.MaxBytes(memory.MinMaxBytes))
	rule := headgate.MustRule("r", headgate.PerHour(5), headgate.Limit{Algorithm: headgate.FixedWindow, Count: 5, Period: time.Hour}, headgate.Sliding(5, time.Hour))
	for i := range 100_000 {
		s.Charge([]headgate.Check{{Rule: rule, Key: fmt.Sprint(i), Cost: 2}})
	}
	stats := s.Stats()
	if stats.Shared == 0 || stats.Bytes > 2*memory.MinMaxBytes {
		t.Errorf("got %+v, want shared counters and at most twice %d bytes", stats, memory.MinMaxBytes)
	}
	for i := range 1000 {
		checks := []headgate.Check{{Rule: rule, Key: fmt.Sprint(90_000 + i)}}
		decisions, err := s.Take(t.Context(), headgate.OpPeek, checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := decisions[0]; d.ResetAfter > time.Hour || d.Remaining == 5 {
			t.Fatalf("the bucket of key %s is %+v, want it charged, and not beyond what it holds", checks[0].Key, d)
		}
	}
}
