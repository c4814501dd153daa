package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// sample is a sliding counter beside a list of everything it admitted within the
// last period.
type sample struct {
	limit *headgate.Limit
	state algorithm.State
	past  []headgate.Instant // times of units
	most  int64              // the most units there ever were within a period
	taken int64
}

func (s *sample) take(now headgate.Instant, cost int64) bool {
	for len(s.past) > 0 && s.past[0] <= now-headgate.Instant(s.limit.Micros()) {
		s.past = s.past[1:]
	}
	s.state = algorithm.Advance(s.limit, s.state, now)
	if !algorithm.Fits(s.limit, s.state, now, cost) {
		return false
	}
	s.state = algorithm.Charge(s.limit, s.state, now, cost)
	for range cost {
		s.past = append(s.past, now)
	}
	s.taken += cost
	s.most = max(s.most, int64(len(s.past)))
	return true
}

func counter(t testing.TB, count int64, period time.Duration) *headgate.Limit {
	return one(t, headgate.Limit{Algorithm: headgate.SlidingCounter, Count: count, Period: period})
}

// TestCounterErrorBound: within any period at most 2·Count - 1 units are admitted,
// whatever the traffic does, and that many can be.
func TestCounterErrorBound(t *testing.T) {
	const begin = 1_000_000_000_000
	for _, count := range []int64{1, 2, 10, 1000} {
		worst := sample{limit: counter(t, count, 10*time.Second)}
		worst.take(begin+9_999_999, count)
		for now := headgate.Instant(begin + 19_999_000); now < begin+20_000_000; now++ {
			for worst.take(now, 1) {
				continue
			}
		}
		if worst.most != 2*count-1 {
			t.Errorf("count %d: %d units within a period, the worst is %d", count, worst.most, 2*count-1)
		}
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		s := sample{limit: counter(t, 1+rng.Int64N(50), time.Duration(1+rng.IntN(3000))*time.Microsecond)}
		now := epoch
		for range 500 {
			now += headgate.Instant(rng.Int64N(s.limit.Micros()/8 + 2))
			if rng.IntN(4) == 0 { // to the end of a window, where it hurts
				now += headgate.Instant(s.limit.Micros()-int64(now)%s.limit.Micros()-1) - headgate.Instant(rng.Int64N(min(3, s.limit.Micros())))
			}
			s.take(now, 1+rng.Int64N(s.limit.Count))
		}
		if s.most > 2*s.limit.Count-1 {
			t.Fatalf("%v: %d units within a period, want at most %d", s.limit, s.most, 2*s.limit.Count-1)
		}
	}
}

// TestCounterErrorMeasured measures what the package documentation says of traffic
// that does not aim at the boundary: units that come at random, on average at some
// multiple of the limit.
func TestCounterErrorMeasured(t *testing.T) {
	const count, period = 100, 10_000_000
	for _, load := range []float64{0.8, 1, 1.5, 3, 10} {
		s := sample{limit: counter(t, count, period*time.Microsecond)}
		rng := rand.New(rand.NewPCG(11, uint64(load*10)))
		now, exactTaken := float64(epoch), int64(0)
		exact := []int64{}
		for now < float64(epoch)+2000*period {
			now += rng.ExpFloat64() * period / count / load
			at := int64(now)
			s.take(headgate.Instant(at), 1)
			for len(exact) > 0 && exact[0] <= at-period {
				exact = exact[1:]
			}
			if len(exact) < count {
				exact = append(exact, at)
				exactTaken++
			}
		}
		if s.most > 116 {
			t.Errorf("load %v: %d units within a period, the documentation says 1.16 times the limit of %d", load, s.most, count)
		}
		if off := float64(s.taken-exactTaken) / float64(exactTaken); off < -0.01 || off > 0.01 {
			t.Errorf("load %v: %d units were admitted, %d by an exact window; the documentation says within one in a hundred", load, s.taken, exactTaken)
		}
	}
}
