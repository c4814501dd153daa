package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// TestBigStates: the states that a store keeps have at most 32 bits in each number, and the counter
// that is read from them is the one that was written, whatever its numbers.
func TestBigStates(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 3))
	split := 0
	for range 20_000 {
		l := headgate.Limit{Count: 1 + rng.Int64N(headgate.MaxCount>>rng.IntN(53)), Period: time.Duration(1+rng.Int64N(31_622_400_000_000)) * time.Microsecond}
		l.Algorithm = []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingCounter}[rng.IntN(4)]
		rule, err := headgate.NewRule("r", l)
		if err != nil {
			t.Fatal(err)
		}
		limit := &rule.Limits()[0]
		s := algorithm.State{Stamp: headgate.Instant(1 + rng.Int64N(1<<52)), Used: 1 + rng.Int64N(algorithm.MaxUsed(limit)>>rng.IntN(20))}
		switch num, _ := limit.Rate(); {
		case l.Algorithm <= headgate.LeakyBucket:
			s.Extra = rng.Int64N(num)
		case l.Algorithm == headgate.SlidingCounter:
			s.Extra = rng.Int64N(algorithm.MaxUsed(limit))
		}
		slots, changed := algorithm.Counter{State: s}.Slots(limit)
		for i, kept := range slots {
			if kept.Used>>32 != 0 || kept.Extra>>32 != 0 || int64(kept.Stamp)>>55 != 0 || kept != (algorithm.State{}) && changed&(1<<i) == 0 {
				t.Fatalf("%v: state %d of %+v is %+v", limit, i, s, kept)
			}
			if i > 1 && kept != (algorithm.State{}) {
				split++
			}
		}
		for _, known := range []bool{true, false} {
			got := algorithm.LoadCounter(limit, known, func(i int) algorithm.State { return slots[i] })
			if got.Bucket != nil || got.State != s {
				t.Fatalf("%v: %+v is kept as %+v and read as %+v", limit, s, slots, got)
			}
		}
	}
	if split < 5000 {
		t.Errorf("%d states had two halves; the test proves little", split)
	}
}

// TestStaleHalf: when a program that knows no halves has written the state of a counter since, the
// high half that it left is not taken for a part of it.
func TestStaleHalf(t *testing.T) {
	limit := &headgate.MustRule("r", headgate.Per(1e12, 24*time.Hour)).Limits()[0]
	slots, _ := algorithm.Counter{State: algorithm.State{Stamp: 1e15, Used: 5e11}}.Slots(limit)
	slots[0].Stamp++
	got := algorithm.LoadCounter(limit, false, func(i int) algorithm.State { return slots[i] })
	if used := got.Used(limit); used < 1<<31 || used >= 1<<32 {
		t.Errorf("%d units are in use, want the low half, which is more than any limit of such a program", used)
	}
}
