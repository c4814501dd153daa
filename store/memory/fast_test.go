package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestFastIsSlow: a store that decides without locks gives the same answers as one that never does,
// which the conformance suite has proven, whatever other requests use the same counters.
func TestFastIsSlow(t *testing.T) {
	histories := storetest.Steps(t, race.Fewer(30_000)) / 300
	open, large, unlocked := 0, 0, 0
	for seed := range uint64(histories) {
		rng := rand.New(rand.NewPCG(seed, 11))
		clock := storetest.NewClock(storetest.Epoch)
		fast, slow := memory.New(memory.SteadyClock(clock.Now)), memory.New(memory.Clock(clock.Now))
		period := []time.Duration{time.Microsecond * 3, time.Second, time.Minute, 365 * 24 * time.Hour}[rng.IntN(4)]
		algorithm := []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingCounter}[rng.IntN(4)]
		align := headgate.AlignUTC
		if algorithm == headgate.FixedWindow {
			align = []headgate.Alignment{headgate.AlignUTC, headgate.AlignFirst, headgate.AlignMinute, headgate.AlignMonth}[rng.IntN(4)]
		}
		counts := []int64{1, 3, 10, 4999, 1_000_000, 1 + rng.Int64N(50_000), 1 + rng.Int64N(1_000_000_000), 1 + rng.Int64N(1e13), 1 + rng.Int64N(headgate.MaxCount)}
		lists := 1 + rng.IntN(3)
		if seed%3 == 0 { // above 10^9, mostly one list that stays in its window, and smaller costs
			counts = []int64{1 + 1<<30 + rng.Int64N(1_000_000), 1<<40 + rng.Int64N(1e13), 1<<50 + rng.Int64N(headgate.MaxCount-1<<50)}
			period = max(period, time.Minute)
			lists = max(1, lists-1-rng.IntN(2))
		}
		var rules []*headgate.Rule
		for range lists { // lists of one rule: other counts, or other bursts
			l := headgate.Limit{Algorithm: algorithm, Count: counts[rng.IntN(len(counts))], Period: period, Align: align}
			if align >= headgate.AlignMinute {
				l.Period = 0
			}
			if algorithm <= headgate.LeakyBucket && rng.IntN(3) == 0 {
				l.Burst = 1 + rng.Int64N(min(2*l.Count, headgate.MaxCount))
			}
			limits := []headgate.Limit{l}
			if rng.IntN(4) == 0 {
				limits = append(limits, headgate.Limit{Algorithm: headgate.FixedWindow, Count: 50, Period: time.Hour}, headgate.PerMinute(1_000_000))
			}
			rules = append(rules, headgate.MustRule("r", limits...))
		}
		type charged struct {
			check headgate.Check
			at    headgate.Instant
		}
		var past []charged
		for step := range 300 {
			clock.Add(time.Duration(rng.Int64N(1 + int64(period)/max(1, rng.Int64N(20_000)))))
			if rng.IntN(100) == 0 {
				clock.Add(3 * time.Minute) // for a sweep
			}
			rule := rules[0]
			if rng.IntN(10) == 0 {
				rule = rules[rng.IntN(len(rules))]
			}
			c := headgate.Check{Rule: rule, Key: string('a' + rune(rng.IntN(2))), Cost: 1 + rng.Int64N(max(1, rule.Limits()[0].Capacity()/max(1, rng.Int64N(6))))}
			if seed%3 == 0 && rng.IntN(10) != 0 {
				c.Cost = 1 + rng.Int64N(min(rule.Limits()[0].Capacity(), 1<<rng.IntN(40)))
			}
			checks, op := []headgate.Check{c}, headgate.OpTake
			switch rng.IntN(20) {
			case 0:
				op = headgate.OpPeek
			case 1:
				op = headgate.OpCharge
			case 2:
				if rng.IntN(10) == 0 {
					op = headgate.OpReset
				}
			case 3, 4:
				if len(past) > 0 {
					p := past[rng.IntN(len(past))]
					checks[0], op = p.check, headgate.OpRefund
					if rng.IntN(2) == 0 {
						checks[0].At = p.at
					}
				}
			case 5:
				checks = append(checks, headgate.Check{Rule: headgate.MustRule("other", headgate.PerSecond(5)), Key: "o"})
			case 6:
				for i := range 200 { // for larger tables
					checks[0].Key, checks[0].Cost = fmt.Sprint("more ", rng.IntN(20_000), i), 1
					sameTake(t, fast, slow, op, checks)
				}
			case 7:
				fast.Charge(checks)
				slow.Charge(checks)
			}
			got := sameTake(t, fast, slow, op, checks)
			if t.Failed() {
				t.Fatalf("seed %d, step %d: %v %v", seed, step, op, checks)
			}
			if op == headgate.OpTake && len(checks) == 1 && len(rule.Limits()) == 1 && rule.Limits()[0].Count > 1_000_000_000 {
				if large++; int64(memory.Last(fast)) < clock.Now() {
					unlocked++
				}
			}
			if op == headgate.OpTake && headgate.NewVerdict(got).Allowed {
				past = append(past, charged{checks[0], got[0].At})
			}
		}
		open += memory.Open(fast)
		if n := memory.Open(slow); n != 0 {
			t.Fatalf("%d entries are open though the clock may step back", n)
		}
	}
	if open < histories {
		t.Errorf("%d entries were open after %d histories; the test proves little", open, histories)
	}
	if large < 10*histories || unlocked < large/8 {
		t.Errorf("%d decisions had counts above 10^9, %d of them took no lock; the test proves little", large, unlocked)
	}
}

// TestLargeCounts: decisions by limits of any count take no lock, unless they bring the counter into
// another window or to another high, or an entry has no room for so many units; and they equal those
// with locks.
func TestLargeCounts(t *testing.T) {
	const day = 24 * time.Hour
	window := func(a headgate.Algorithm, count int64, period time.Duration, align headgate.Alignment) headgate.Limit {
		return headgate.Limit{Algorithm: a, Count: count, Period: period, Align: align}
	}
	for _, c := range []struct {
		limit  headgate.Limit
		locked int // of 1000 decisions, at most
	}{
		{headgate.PerSecond(1_000_000_000), 1},
		{headgate.Per(1_000_000_000_000, day), 1},
		{headgate.Per(10<<30, day), 1},
		{headgate.PerSecond(899_999_999).WithBurst(5_000_000_000_000), 1},
		{headgate.Per(999_999_999_989, day), 2},       // a prime number
		{headgate.Per(1_234_567_891_234, 30*day), 2},  // money in millionths
		{headgate.Per(headgate.MaxCount, 14*day), 10}, // hardly a factor in common with the period
		{headgate.PerSecond(headgate.MaxCount), 10},
		{headgate.Per(headgate.MaxCount, 15*time.Microsecond), 10},
		{headgate.Per(500_000_000_000_007, 366*day), 2},
		{headgate.Per(headgate.MaxCount, 366*day), 10}, // its Words and highs have all of their 98 bits
		{window(headgate.FixedWindow, headgate.MaxCount, 0, headgate.AlignMonth), 1},
		{window(headgate.FixedWindow, headgate.MaxCount, day, headgate.AlignUTC), 1},
		{window(headgate.FixedWindow, headgate.MaxCount, 15*day, headgate.AlignFirst), 2},
		{window(headgate.FixedWindow, 1<<49, 366*day, headgate.AlignFirst), 2},
		{window(headgate.SlidingCounter, 1<<46, day, headgate.AlignUTC), 2},
		{window(headgate.SlidingCounter, 1<<46, 366*day, headgate.AlignUTC), 2},
		{window(headgate.SlidingCounter, 1<<39, time.Second, headgate.AlignUTC), 2},
		{window(headgate.SlidingCounter, headgate.MaxCount, day, headgate.AlignUTC), 1000},
	} {
		rule := headgate.MustRule("r", c.limit)
		clock := storetest.NewClock(storetest.Epoch)
		fast, slow := memory.New(memory.SteadyClock(clock.Now)), memory.New(memory.Clock(clock.Now))
		locked, denied := 0, 0
		for i := range 1000 {
			clock.Add(5 * time.Microsecond)
			cost := int64(1 + i)
			if i == 0 {
				cost = c.limit.Capacity() / 1_000_003 * 1_000_000 // so much is in use from here on
			}
			if i%3 == 2 {
				cost = c.limit.Capacity()
			}
			got := sameTake(t, fast, slow, headgate.OpTake, []headgate.Check{{Rule: rule, Key: "k", Cost: cost}})
			if t.Failed() {
				t.Fatalf("%v, decision %d, cost %d", c.limit, i, cost)
			}
			if int64(memory.Last(fast)) == clock.Now() {
				locked++
			}
			if !got[0].Allowed {
				denied++
			}
		}
		if denied == 0 || denied > 500 {
			t.Errorf("%v: %d of 1000 decisions are denials; the test proves little", &c.limit, denied)
		}
		if locked > c.locked || locked < c.locked/20 {
			t.Errorf("%v: %d of 1000 decisions took the lock, at most %d should have", &c.limit, locked, c.locked)
		}
		if n := fast.Stats().Counters; n != 1 && c.locked < 1000 {
			t.Errorf("%v: %d entries, want 1", &c.limit, n)
		}
	}
}

// TestTakeKeyIsTake: what a limiter of several limits is told in one go equals the deciding one of the
// decisions that a store which always locks makes about each limit, and as much is charged.
func TestTakeKeyIsTake(t *testing.T) {
	histories := storetest.Steps(t, race.Fewer(40_000)) / 200
	asked, answered, denied := 0, 0, 0
	places := map[int]int{}
	for seed := range uint64(histories) {
		rng := rand.New(rand.NewPCG(seed, 23))
		clock := storetest.NewClock(storetest.Epoch)
		fast, slow := memory.New(memory.SteadyClock(clock.Now)), memory.New(memory.Clock(clock.Now))
		var rules []*headgate.Rule
		for limits := 2 + rng.IntN(7); limits > 0; {
			var list []headgate.Limit
			for i := range 1 + rng.IntN(limits) {
				l := headgate.Limit{
					Algorithm: []headgate.Algorithm{headgate.TokenBucket, headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingCounter}[rng.IntN(5)],
					Count:     []int64{1 + rng.Int64N(40), 1 + rng.Int64N(1000), 1 + rng.Int64N(2_000_000_000), 1 + rng.Int64N(headgate.MaxCount)}[rng.IntN(4)],
					Period:    []time.Duration{time.Millisecond, time.Second, time.Minute}[rng.IntN(3)] * time.Duration(1+i),
				}
				if l.Algorithm <= headgate.LeakyBucket && rng.IntN(3) == 0 {
					l.Burst = 1 + rng.Int64N(l.Count)
				}
				if l.Algorithm == headgate.FixedWindow && rng.IntN(3) == 0 {
					l.Align = headgate.AlignFirst
				}
				list = append(list, l)
			}
			limits -= len(list)
			rules = append(rules, headgate.MustRule(fmt.Sprint("r", len(rules)), list...))
		}
		var checks []headgate.Check
		for _, r := range rules {
			checks = append(checks, headgate.Check{Rule: r})
		}
		var decisions []headgate.Decision
		for range 200 {
			clock.Add(time.Duration(rng.Int64N(int64(time.Millisecond) << rng.IntN(8))))
			key, cost := string('a'+rune(rng.IntN(2))), 1+rng.Int64N(1<<rng.IntN(30))
			if rng.IntN(2) == 0 {
				cost = 1 + rng.Int64N(5)
			}
			for i := range checks {
				checks[i].Key, checks[i].Cost = key, cost
			}
			switch rng.IntN(12) {
			case 0:
				sameTake(t, fast, slow, headgate.OpRefund, checks)
			case 1:
				sameTake(t, fast, slow, headgate.OpTake, checks[:1]) // perhaps without a lock
			}
			var err error
			if decisions, err = slow.Take(t.Context(), headgate.OpTake, checks, decisions[:0]); err != nil {
				t.Fatal(err)
			}
			v := headgate.NewVerdict(decisions)
			want := v.Deciding()
			asked++
			which, allowed, remaining, retry, reset, delay, at, ok := fast.TakeKey(t.Context(), rules, key, cost)
			if !ok {
				sameDecisions(t, fast, checks, decisions)
				continue
			}
			answered++
			got := *want
			got.Allowed, got.Remaining, got.RetryAfter, got.ResetAfter, got.Delay, got.At = allowed, remaining, retry, reset, delay, at
			if got != *want || &decisions[which] != want {
				t.Fatalf("seed %d, %v, cost %d: decision %d of %+v is %+v, want %+v", seed, rules, cost, which, decisions, got, *want)
			}
			if !allowed {
				denied++
			}
			places[which]++
		}
	}
	if answered < asked/3 || denied < answered/10 || denied > answered*9/10 || len(places) != 8 {
		t.Errorf("%d of %d were answered, %d of them denied, by places %v; the test proves little", answered, asked, denied, places)
	}
}

// TestManyLimits: a request for any number of limits is decided as by a store that always locks, by whichever
// way it is decided.
func TestManyLimits(t *testing.T) {
	histories := storetest.Steps(t, race.Fewer(10_000)) / 50
	decisions, denied := 0, 0
	for seed := range uint64(histories) {
		rng := rand.New(rand.NewPCG(seed, 29))
		clock := storetest.NewClock(storetest.Epoch)
		fast, slow := memory.New(memory.SteadyClock(clock.Now)), memory.New(memory.Clock(clock.Now))
		var checks []headgate.Check
		for n, limits := 0, 1+rng.IntN(20); n < limits; {
			var list []headgate.Limit
			for i := range 1 + rng.IntN(3) {
				list = append(list, headgate.Limit{
					Algorithm: []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingCounter}[rng.IntN(4)],
					Count:     []int64{20 + rng.Int64N(100), 1 + rng.Int64N(headgate.MaxCount)}[rng.IntN(2)],
					Period:    []time.Duration{time.Second, time.Minute, time.Hour}[rng.IntN(3)] * time.Duration(1+i),
				})
			}
			if rng.IntN(40) == 0 { // which is kept in another way
				list[0].Algorithm, list[0].Count = headgate.SlidingWindow, 50
			}
			n += len(list)
			checks = append(checks, headgate.Check{Rule: headgate.MustRule(fmt.Sprint("r", len(checks)), list...), Shadow: rng.IntN(8) == 0})
		}
		for range 50 {
			clock.Add(time.Duration(rng.Int64N(int64(time.Millisecond) << rng.IntN(12))))
			for i := range checks {
				checks[i].Key, checks[i].Cost = string('a'+rune(rng.IntN(2))), 1+rng.Int64N(3)
			}
			op := headgate.OpTake
			if rng.IntN(6) == 0 {
				op = []headgate.Op{headgate.OpPeek, headgate.OpRefund, headgate.OpCharge}[rng.IntN(3)]
			}
			got := sameTake(t, fast, slow, op, checks)
			if t.Failed() {
				t.Fatalf("seed %d: %v %v", seed, op, checks)
			}
			if op == headgate.OpTake {
				if decisions++; !headgate.NewVerdict(got).Allowed {
					denied++
				}
			}
		}
	}
	if denied < decisions/20 || denied > decisions*19/20 {
		t.Errorf("%d of %d requests were denied; the test proves little", denied, decisions)
	}
}

// sameDecisions asks a store, and fails if it does not decide the same.
func sameDecisions(t *testing.T, s headgate.Store, checks []headgate.Check, want []headgate.Decision) {
	t.Helper()
	if got, err := s.Take(t.Context(), headgate.OpTake, checks, nil); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
}

// TestTakeKeyDeclines: what TakeKey is not for, it leaves to Take, and charges nothing.
func TestTakeKeyDeclines(t *testing.T) {
	clock := storetest.NewClock(storetest.Epoch)
	two := headgate.MustRule("two", headgate.PerHour(3), headgate.PerMinute(3))
	three := headgate.MustRule("three", headgate.PerHour(3), headgate.PerMinute(3), headgate.PerSecond(3))
	exact := headgate.MustRule("exact", headgate.PerHour(3), headgate.Sliding(3, time.Hour))
	penal := headgate.MustRule("penal", headgate.PerHour(3), headgate.Limit{Algorithm: headgate.Penalty, Count: 1, Period: time.Hour, Block: time.Hour})
	for name, c := range map[string]struct {
		clock func(func() int64) memory.Option
		bytes int64
		rules []*headgate.Rule
		key   string
		cost  int64
	}{
		"clock":       {memory.Clock, memory.DefaultMaxBytes, []*headgate.Rule{two}, "k", 1},
		"key":         {memory.SteadyClock, memory.DefaultMaxBytes, []*headgate.Rule{two}, strings.Repeat("k", headgate.MaxKey+1), 1},
		"cost":        {memory.SteadyClock, memory.DefaultMaxBytes, []*headgate.Rule{two}, "k", -1},
		"large cost":  {memory.SteadyClock, memory.DefaultMaxBytes, []*headgate.Rule{two}, "k", headgate.MaxCount + 1},
		"no rule":     {memory.SteadyClock, memory.DefaultMaxBytes, nil, "k", 1},
		"five limits": {memory.SteadyClock, memory.DefaultMaxBytes, []*headgate.Rule{two, three}, "k", 1},
		"window":      {memory.SteadyClock, memory.DefaultMaxBytes, []*headgate.Rule{exact}, "k", 1},
		"small store": {memory.SteadyClock, memory.MinMaxBytes, []*headgate.Rule{two, headgate.MustRule("one", headgate.PerHour(3))}, "k", 1},
		"penalty":     {memory.SteadyClock, memory.DefaultMaxBytes, []*headgate.Rule{penal}, "k", 1},
	} {
		s := memory.New(c.clock(clock.Now), memory.MaxBytes(c.bytes))
		if _, _, _, _, _, _, _, ok := s.TakeKey(t.Context(), c.rules, c.key, c.cost); ok {
			t.Errorf("%s: it decides", name)
		}
		if n := s.Stats().Counters; n != 0 {
			t.Errorf("%s: %d counters", name, n)
		}
	}
}

// sameTake asks both stores and fails if the answers differ.
func sameTake(t *testing.T, a, b headgate.Store, op headgate.Op, checks []headgate.Check) []headgate.Decision {
	t.Helper()
	got, err := a.Take(context.Background(), op, checks, nil)
	want, other := b.Take(context.Background(), op, checks, nil)
	if err != nil || other != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("without locks: %+v, %v; with locks: %+v, %v", got, err, want, other)
	}
	return got
}

// TestFastCountsExactly has goroutines use one counter in every way while new keys make its shard's
// table grow: each unit is counted once.
func TestFastCountsExactly(t *testing.T) {
	const limit, workers, each = 4000, 16, 1500
	ever := 300 * 24 * time.Hour // nothing is refilled meanwhile
	own := headgate.MustRule("own", headgate.Per(5, ever))
	bucket := headgate.Per(limit, ever)
	window := headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Period: ever, Align: headgate.AlignFirst}
	counter := headgate.Limit{Algorithm: headgate.SlidingCounter, Count: limit, Period: ever}
	large := headgate.Per(limit*249_989, 30*24*time.Hour) // each cost of so much changes the upper bits of its Words
	const prime = 4_294_967_311                           // a prime number above 2^32
	const most = headgate.MaxCount / limit
	huge := headgate.Per(limit*most+1, ever) // its highs have more than 32 bits, and all change with each charge
	year := headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit * prime, Align: headgate.AlignYear}
	wide := headgate.Limit{Algorithm: headgate.SlidingCounter, Count: limit * prime, Period: ever}
	for name, s := range map[string]*memory.Store{
		"own clock":  memory.New(),
		"window":     memory.New(),
		"counter":    memory.New(),
		"clock":      memory.New(memory.SteadyClock(storetest.NewClock(storetest.Epoch).Now)),
		"large":      memory.New(memory.SteadyClock(storetest.NewClock(storetest.Epoch).Now)),
		"huge":       memory.New(memory.SteadyClock(storetest.NewClock(storetest.Epoch).Now)),
		"year":       memory.New(memory.SteadyClock(storetest.NewClock(storetest.Epoch).Now)),
		"wide":       memory.New(),
		"small":      memory.New(memory.MaxBytes(memory.MinMaxBytes)),
		"with locks": memory.New(memory.Clock(storetest.NewClock(storetest.Epoch).Now)),
	} {
		t.Run(name, func(t *testing.T) {
			l, cost := bucket, int64(1)
			switch name {
			case "large":
				l, cost = large, 249_989
			case "huge":
				l, cost = huge, most
			case "year":
				l, cost = year, prime
			case "wide":
				l, cost = wide, prime
			case "window":
				l = window
			case "counter":
				l = counter
			}
			hot, same := headgate.MustRule("hot", l), headgate.MustRule("hot", l, headgate.Sliding(headgate.MaxLog, ever))
			both := []*headgate.Rule{hot, headgate.MustRule("ample", headgate.Per(7_200_000_000_000_000, time.Hour))}
			limiter := headgate.New(s, hot)
			if _, err := limiter.AllowN(t.Context(), "k", cost); err != nil { // before memory is full
				t.Fatal(err)
			}
			var used, keyed atomic.Int64
			used.Add(1)
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(w), 5))
					for i := range each {
						one := []headgate.Check{{Rule: hot, Key: "k", Cost: cost}}
						op := headgate.OpTake
						switch rng.IntN(8) {
						case 0:
							one = append(one, headgate.Check{Rule: own, Key: fmt.Sprint(w, i)})
						case 1:
							one[0].Rule = same
						case 2:
							op = headgate.OpPeek
						case 3:
							one[0] = headgate.Check{Rule: own, Key: fmt.Sprint("new", w, i)}
						}
						if op == headgate.OpTake && len(one) == 1 && one[0].Rule == hot && rng.IntN(4) == 0 {
							if _, allowed, _, _, _, _, _, ok := s.TakeKey(context.Background(), both, "k", cost); ok && allowed {
								used.Add(1)
								keyed.Add(1)
							}
							continue
						}
						got, err := s.Take(context.Background(), op, one, nil)
						if err != nil {
							t.Error(err)
							return
						}
						if op != headgate.OpTake || one[0].Rule == own || !headgate.NewVerdict(got).Allowed {
							continue
						}
						used.Add(1)
						if rng.IntN(3) == 0 {
							if _, err := s.Take(context.Background(), headgate.OpRefund, one[:1], nil); err != nil {
								t.Error(err)
							}
							used.Add(-1)
						}
					}
				})
			}
			all.Wait()
			if keyed.Load() == 0 && name != "with locks" && name != "small" && name != "huge" { // each charge of huge needs the lock
				t.Error("TakeKey never admitted anything; the test proves little")
			}
			d, err := limiter.Peek(t.Context(), "k", cost)
			if err != nil {
				t.Fatal(err)
			}
			if got := (l.Count - d.Remaining) / cost; got != used.Load() {
				t.Errorf("%d units are in use, %d were admitted and not given back", got, used.Load())
			}
			if d.Allowed != (used.Load() < limit) {
				t.Errorf("allowed is %t with %d of %d units in use", d.Allowed, used.Load(), limit)
			}
		})
	}
}

// TestFastAfterAChange: when a limit changes, its counters are used without locks again after the
// next sweep, and not before, or a caller who has read the old count could take its Word for one of
// the new count.
func TestFastAfterAChange(t *testing.T) {
	clock := storetest.NewClock(storetest.Epoch)
	s := memory.New(memory.SteadyClock(clock.Now))
	was, is := headgate.MustRule("r", headgate.PerSecond(5)), headgate.MustRule("r", headgate.PerSecond(10))
	use := func(rule *headgate.Rule, want int) {
		t.Helper()
		for range 2 {
			if !take(t, s, headgate.OpTake, headgate.Check{Rule: rule, Key: "k"}).Allowed {
				t.Fatal("denied")
			}
		}
		if n := memory.Open(s); n != want {
			t.Errorf("%d entries are open, want %d", n, want)
		}
	}
	use(was, 1)
	clock.Add(10 * time.Second)
	use(is, 0)
	clock.Add(2 * time.Minute)
	use(is, 1)
}

// TestDenialOpens: a counter that a request for several limits has used is used without locks again
// after the next request for it alone, even if that is denied. Otherwise a key that is always denied
// would stay slow. A denied request for a new key leaves no counter.
func TestDenialOpens(t *testing.T) {
	s := memory.New(memory.SteadyClock(storetest.NewClock(storetest.Epoch).Now))
	one := headgate.Check{Rule: headgate.MustRule("r", headgate.PerHour(2)), Key: "k"}
	for _, step := range []struct {
		checks         []headgate.Check
		allowed        bool
		counters, open int
	}{
		{[]headgate.Check{{Rule: one.Rule, Key: "k", Cost: 3}}, false, 0, 0},
		{[]headgate.Check{one}, true, 1, 1},
		{[]headgate.Check{one, {Rule: one.Rule, Key: "other"}}, true, 2, 0},
		{[]headgate.Check{one, {Rule: one.Rule, Key: "third"}}, false, 2, 0},
		{[]headgate.Check{one}, false, 2, 1},
	} {
		got, err := s.Take(t.Context(), headgate.OpTake, step.checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		if allowed := headgate.NewVerdict(got).Allowed; allowed != step.allowed || s.Stats().Counters != step.counters || memory.Open(s) != step.open {
			t.Fatalf("%+v: allowed is %t, with %d counters, %d of them open", step, allowed, s.Stats().Counters, memory.Open(s))
		}
	}
}
