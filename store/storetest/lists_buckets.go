package storetest

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// sharedBucket: a bucket that lists of different rates share admits no more than the
// fastest rate and the largest burst of them, to all together.
func sharedBucket(t *testing.T, mk Maker) {
	for _, a := range []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket} {
		s := newSubject(t, mk)
		fast := headgate.MustRule("api", headgate.Limit{Algorithm: a, Count: 100, Period: time.Second, Burst: 20})
		slow := headgate.MustRule("api", headgate.Limit{Algorithm: a, Count: 5, Period: time.Second, Burst: 30})
		rng := rand.New(rand.NewPCG(25, uint64(a)))
		begin, admitted := s.clock.Now(), int64(0)
		for range 400 {
			s.wait(time.Duration(rng.IntN(8)) * time.Millisecond)
			r := []*headgate.Rule{fast, slow}[rng.IntN(2)]
			if s.one(headgate.OpTake, r, "ann", 1).Allowed {
				admitted++
			}
			if most := 30 + (s.clock.Now()-begin)*100/1_000_000 + 1; admitted > most {
				t.Fatalf("%s: %d were admitted within %d µs, want at most %d", a, admitted, s.clock.Now()-begin, most)
			}
		}
	}
}

// ownRates: whatever lists take turns on a bucket, no list is ever admitted more than its own
// burst and rate, by its exact level, and all together no more than the largest burst and the
// fastest rate.
func ownRates(t *testing.T, mk Maker) {
	for round := range uint64(12) { // all kinds, each once
		s := newSubject(t, mk)
		rng := rand.New(rand.NewPCG(26, round))
		period := time.Duration(1+rng.Int64N(20_000_000)) * time.Microsecond
		if round%2 == 0 {
			period = time.Second
		}
		rules, levels := make([]*headgate.Rule, 2+rng.IntN(7)), make([]level, 9)
		all := &levels[8]
		for i := range rules {
			l := headgate.Limit{Algorithm: headgate.Algorithm(round / 2 % 2), Count: 1 + rng.Int64N(5<<rng.IntN(8)), Period: period, Burst: 1 + rng.Int64N(20)}
			if round%3 == 0 {
				l.Count = 1 + rng.Int64N(headgate.MaxCount/100)>>rng.IntN(24)
			}
			rules[i] = headgate.MustRule("r", l)
			levels[i] = newLevel(&l, s.clock.Now())
			if all.rate == nil || all.rate.Cmp(levels[i].rate) < 0 {
				all.rate, all.at = levels[i].rate, s.clock.Now()
			}
			all.burst = max(all.burst, l.Burst)
		}
		all.units = new(big.Rat)
		for range 100 {
			// As long as one of them takes for a few units.
			unit := period.Microseconds()/rules[rng.IntN(len(rules))].Limits()[0].Count + 1
			s.wait(time.Duration(rng.Int64N(2*unit)) * time.Microsecond)
			i, cost := rng.IntN(len(rules)), 1+rng.Int64N(3)
			c := headgate.Check{Rule: rules[i], Key: "k", Cost: cost}
			if s.do(headgate.OpTake, c)[0].Allowed {
				levels[i].add(t, cost, s.clock.Now(), rules[i].Limits()[0].String())
				all.add(t, cost, s.clock.Now(), "all lists")
			}
		}
	}
}

// level is what a list has in use of its own burst, exactly.
type level struct {
	units, rate *big.Rat // the rate is in units per µs
	burst, at   int64
}

func newLevel(l *headgate.Limit, now int64) level {
	return level{units: new(big.Rat), rate: big.NewRat(l.Count, l.Micros()), burst: l.Capacity(), at: now}
}

func (v *level) add(t *testing.T, cost, now int64, of string) {
	t.Helper()
	gone := new(big.Rat).Mul(v.rate, new(big.Rat).SetInt64(now-v.at))
	if v.units.Sub(v.units, gone); v.units.Sign() < 0 {
		v.units.SetInt64(0)
	}
	v.at = now
	if v.units.Add(v.units, new(big.Rat).SetInt64(cost)); v.units.Cmp(new(big.Rat).SetInt64(v.burst)) > 0 {
		t.Fatalf("%s: %s units were admitted beyond what has been refilled, with a burst of %d", of, v.units.FloatString(3), v.burst)
	}
}

// bucketsByMethod is a rule with limits: {method: {GET: [100 per 1s], POST: [5 per 1s]}}.
// GETs do not refill the bucket of the POSTs, and POSTs do not slow down that of the GETs.
func bucketsByMethod(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	get, post := headgate.MustRule("api", headgate.PerSecond(100)), headgate.MustRule("api", headgate.PerSecond(5))
	posts := 0
	for i := range 400 { // 4 s
		if d := s.one(headgate.OpTake, post, "ann", 1); d.Allowed {
			posts++
		} else if d.RetryAfter > 200*time.Millisecond {
			t.Fatalf("step %d: a POST is to wait for %v, and one comes free every 200 ms", i, d.RetryAfter)
		}
		if i%2 == 0 {
			if d := s.one(headgate.OpTake, get, "ann", 1); !d.Allowed || d.Remaining < 92 {
				t.Fatalf("step %d: of a GET %s; want it admitted, and what the POSTs have used counted once", i, formatDecision(&d))
			}
		}
		s.wait(10 * time.Millisecond)
	}
	if posts != 24 {
		t.Errorf("%d POSTs were admitted in 4 s, want 5 and then 5 a second, 24", posts)
	}
	// What the POSTs have in use are a few units of a hundred for the GETs.
	s.wait(30 * time.Millisecond)
	if d := s.one(headgate.OpPeek, get, "ann", 1); d.Remaining != 100 {
		t.Errorf("%s: want 100 remaining for GETs", formatDecision(&d))
	}
}

// rateOfABucket: a bucket that is full refills at a new rate from the first request on that
// the list of that rate denies, and nobody gets a fresh start.
func rateOfABucket(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	slow, fast := headgate.MustRule("r", headgate.PerHour(10).WithBurst(100)), headgate.MustRule("r", headgate.PerHour(3600).WithBurst(100))
	s.want(headgate.OpTake, slow, "k", 100, true, 0)
	if d := s.want(headgate.OpTake, fast, "k", 50, false, 0); d.RetryAfter != 50*time.Second {
		t.Errorf("raised: retry after %v, want 50 s", d.RetryAfter)
	}
	s.wait(50 * time.Second)
	s.want(headgate.OpTake, fast, "k", 50, true, 0)
	s.wait(20 * time.Second)
	// The old list has used a hundred itself, of which it has got nothing back yet.
	if d := s.want(headgate.OpTake, slow, "k", 1, false, 0); d.RetryAfter != 6*time.Minute-70*time.Second {
		t.Errorf("back to the slow list: retry after %v, want what is left of six minutes", d.RetryAfter)
	}
	s.want(headgate.OpPeek, fast, "k", 20, true, 20)
	for range 20 { // who lowers a rate keeps what was used, which drains at the new rate
		s.wait(15 * time.Minute)
	}
	s.do(headgate.OpReset, headgate.Check{Rule: slow, Key: "k"})
	s.want(headgate.OpPeek, slow, "k", 100, true, 100)
	s.want(headgate.OpTake, fast, "k", 100, true, 0)
	if d := s.want(headgate.OpTake, slow, "k", 1, false, 0); d.RetryAfter != 6*time.Minute {
		t.Errorf("lowered: retry after %v, want six minutes", d.RetryAfter)
	}
}

// refundToAList: what a list is given back, it can use again; nothing comes back twice.
func refundToAList(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	get, post := headgate.MustRule("api", headgate.PerSecond(100)), headgate.MustRule("api", headgate.PerSecond(5))
	s.want(headgate.OpTake, get, "ann", 2, true, 98)
	took := s.want(headgate.OpTake, post, "ann", 3, true, 0)
	s.want(headgate.OpPeek, get, "ann", 1, true, 95)
	s.do(headgate.OpRefund, headgate.Check{Rule: post, Key: "ann", Cost: 3, At: took.At})
	s.want(headgate.OpPeek, get, "ann", 1, true, 98)
	s.want(headgate.OpPeek, post, "ann", 1, true, 3)
	s.do(headgate.OpCharge, headgate.Check{Rule: post, Key: "ann", Cost: 10})
	s.want(headgate.OpPeek, get, "ann", 1, true, 88)
	if d := s.want(headgate.OpTake, post, "ann", 1, false, 0); d.RetryAfter != 1600*time.Millisecond {
		t.Errorf("retry after %v with 12 of 5 in use, want 1.6 s", d.RetryAfter)
	}
	s.wait(100 * time.Millisecond)
	// The bucket of all has refilled ten units, which were those that came first and
	// most of the ten. It gives back the two others at most.
	s.do(headgate.OpRefund, headgate.Check{Rule: post, Key: "ann", Cost: 10, At: took.At})
	s.want(headgate.OpPeek, get, "ann", 1, true, 98)
}

// refundOfDrained: what lists share is not given units back that had drained from it before it
// was empty, although the list that gives them back has them in use of its own still.
func refundOfDrained(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	get, post := headgate.MustRule("api", headgate.PerSecond(1000)), headgate.MustRule("api", headgate.PerSecond(10).WithBurst(1000))
	took := s.want(headgate.OpTake, post, "ann", 500, true, 500)
	s.want(headgate.OpPeek, get, "ann", 1, true, 500)
	s.wait(500 * time.Millisecond)
	s.want(headgate.OpPeek, get, "ann", 1, true, 1000)
	s.want(headgate.OpTake, post, "ann", 400, true, 105) // of the burst, and five that came back
	s.do(headgate.OpRefund, headgate.Check{Rule: post, Key: "ann", Cost: 500, At: took.At})
	s.want(headgate.OpPeek, get, "ann", 1, true, 600)
	s.want(headgate.OpPeek, post, "ann", 1, true, 600)
	// What has been charged since comes back from both.
	again := s.want(headgate.OpTake, post, "ann", 100, true, 500)
	s.do(headgate.OpRefund, headgate.Check{Rule: post, Key: "ann", Cost: 100, At: again.At})
	s.want(headgate.OpPeek, get, "ann", 1, true, 600)
}

// settledAsks: who settles at what was reserved has asked, as one who looks has: the bucket of all
// drains at its rate from then on.
func settledAsks(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	l := ledgerOf(s)
	get, post := headgate.MustRule("api", headgate.PerSecond(10)), headgate.MustRule("api", headgate.PerSecond(1).WithBurst(10))
	r, _, err := l.Reserve(t.Context(), headgate.Terms{For: time.Hour}, []headgate.Check{{Rule: get, Key: "ann", Cost: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.wait(time.Second) // it has drained
	s.want(headgate.OpTake, post, "ann", 4, true, 6)
	if _, err := l.Settle(t.Context(), r, []int64{1}, nil); err != nil {
		t.Fatal(err)
	}
	s.wait(time.Second)
	s.want(headgate.OpPeek, get, "ann", 1, true, 10)
	s.want(headgate.OpPeek, post, "ann", 1, true, 7)
}

// deepBucket: a bucket that needs a hundred of its periods to be free again is not forgotten
// while other lists are charged.
func deepBucket(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	deep := headgate.MustRule("r", headgate.Per(10, time.Minute).WithBurst(1000))
	others := []*headgate.Rule{
		headgate.MustRule("r", headgate.PerSecond(10)),
		headgate.MustRule("r", headgate.Sliding(5, time.Second), headgate.PerSecond(10)),
		headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 9, Period: time.Second}),
		headgate.MustRule("r", headgate.Sliding(5, time.Second)),
	}
	s.want(headgate.OpTake, deep, "k", 1000, true, 0)
	for i := range int64(90) {
		s.wait(time.Minute)
		if d := s.one(headgate.OpTake, others[i%4], "k", 1); !d.Allowed {
			t.Fatalf("minute %d: %s", i, formatDecision(&d))
		}
		s.do(headgate.OpRefund, headgate.Check{Rule: others[(i+1)%4], Key: "k"})
		s.want(headgate.OpPeek, deep, "k", 1000, false, 10*(i+1))
	}
}

// blocksOfOthers: a list whose penalty blocks for a minute does not shorten the day for which
// another list has blocked the key.
func blocksOfOthers(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	login := headgate.MustRule("r", headgate.PerHour(1), headgate.Blocking(1, time.Minute, 24*time.Hour, 0))
	read := headgate.MustRule("r", headgate.PerSecond(100), headgate.Blocking(9, time.Minute, time.Minute, 0))
	s.do(headgate.OpTake, headgate.Check{Rule: login, Key: "k"})
	s.do(headgate.OpTake, headgate.Check{Rule: login, Key: "k"}) // denied, and blocked
	for i := range 23 {
		for _, op := range []headgate.Op{headgate.OpTake, headgate.OpPeek, headgate.OpRefund, headgate.OpCharge} {
			s.do(op, headgate.Check{Rule: read, Key: "k"})
		}
		s.wait(time.Hour)
		d := s.do(headgate.OpTake, headgate.Check{Rule: login, Key: "k"})
		if want := time.Duration(23-i) * time.Hour; d[1].Allowed || d[1].RetryAfter != want {
			t.Fatalf("after %d h: %s; want it blocked for %v", i+1, formatDecision(&d[1]), want)
		}
	}
	s.wait(time.Hour)
	if d := s.do(headgate.OpTake, headgate.Check{Rule: login, Key: "k"}); !headgate.NewVerdict(d).Allowed {
		t.Errorf("after the day it is denied: %s", formatDecision(&d[1]))
	}
}
