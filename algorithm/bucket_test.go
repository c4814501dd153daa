package algorithm_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// one makes a rule of one limit and returns the limit, prepared for decisions.
func one(t testing.TB, l headgate.Limit) *headgate.Limit {
	t.Helper()
	r, err := headgate.NewRule("r", l)
	if err != nil {
		t.Fatal(err)
	}
	return &r.Limits()[0]
}

const epoch = headgate.Instant(1_790_000_000_123_457) // µs; no window's boundary

// level is how many units are in use, as an exact fraction: the obvious way to keep
// a bucket.
type level struct {
	units *big.Rat
	at    headgate.Instant
	rate  *big.Rat // units per µs
}

func newLevel(l *headgate.Limit, now headgate.Instant) *level {
	return &level{units: new(big.Rat), at: now, rate: big.NewRat(l.Count, l.Micros())}
}

func (v *level) advance(now headgate.Instant) {
	gone := new(big.Rat).Mul(v.rate, new(big.Rat).SetInt64(int64(now-v.at)))
	if v.units.Sub(v.units, gone); v.units.Sign() < 0 {
		v.units.SetInt64(0)
	}
	v.at = now
}

// until is the time until no more than left units are in use, rounded up to a µs.
func (v *level) until(left int64) *big.Int {
	t := new(big.Rat).Sub(v.units, new(big.Rat).SetInt64(left))
	if t.Sign() <= 0 {
		return new(big.Int)
	}
	return ceil(t.Quo(t, v.rate))
}

func ceil(r *big.Rat) *big.Int {
	q, m := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// exact is the level that a state stands for, without any rounding.
func exact(l *headgate.Limit, s algorithm.State, now headgate.Instant) *big.Rat {
	num, den := l.Rate()
	since := new(big.Rat).Sub(new(big.Rat).SetInt64(int64(now-s.Stamp)), big.NewRat(s.Extra, num))
	gone := since.Mul(since, big.NewRat(num, den))
	return gone.Sub(new(big.Rat).SetInt64(s.Used), gone)
}

// randomLimit makes a bucket of any rate that is allowed, remainders of all sizes
// among them.
func randomLimit(t testing.TB, rng *rand.Rand) *headgate.Limit {
	for {
		l := headgate.Limit{Algorithm: headgate.Algorithm(rng.IntN(2))}
		magnitude := func(most int64) int64 { return 1 + rng.Int64N(int64(math.Pow(float64(most), rng.Float64()))) }
		l.Count = magnitude(headgate.MaxCount)
		l.Period = time.Duration(magnitude(headgate.MaxPeriod.Microseconds())) * time.Microsecond
		l.Burst = magnitude(headgate.MaxCount)
		if _, err := headgate.NewRule("r", l); err == nil {
			return one(t, l)
		}
	}
}

// TestBucketLosesNothing holds the steps against exact fractions, at rates and times
// of any size: the levels are equal, not just near.
func TestBucketLosesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		l := randomLimit(t, rng)
		now := epoch
		var s algorithm.State
		v := newLevel(l, now)
		for step := range 30 {
			num, den := l.Rate()
			unit := den/num + 1
			switch rng.IntN(4) {
			case 0:
				now += headgate.Instant(rng.Int64N(4))
			case 1:
				now += headgate.Instant(rng.Int64N(unit + 1))
			case 2:
				now += headgate.Instant(rng.Int64N(3*unit + 1))
			default:
				now += headgate.Instant(rng.Int64N(min(unit*l.Burst, 1<<50) + 1))
			}
			v.advance(now)
			direct := s
			if first := max(s.Stamp+1, epoch); first <= now && rng.IntN(2) == 0 { // by way of another time
				s = algorithm.Advance(l, s, first+headgate.Instant(rng.Int64N(int64(now-first)+1)))
			}
			s, direct = algorithm.Advance(l, s, now), algorithm.Advance(l, direct, now)
			if s != direct {
				t.Fatalf("%v, step %d: %+v by way of another time, %+v directly", l, step, s, direct)
			}
			if s.IsZero() != (v.units.Sign() == 0) || !s.IsZero() && exact(l, s, now).Cmp(v.units) != 0 {
				t.Fatalf("%v, step %d: state %+v at %d stands for %v units, want %v", l, step, s, now, exact(l, s, now), v.units)
			}
			cost := 1 + rng.Int64N(l.Burst)
			fits := algorithm.Fits(l, s, now, cost)
			room := new(big.Rat).SetInt64(l.Burst - cost)
			if want := v.units.Cmp(room) <= 0; fits != want {
				t.Fatalf("%v, step %d: cost %d with %v in use: fits is %t", l, step, cost, v.units, fits)
			}
			before, after := s, s
			if fits {
				after = algorithm.Charge(l, s, now, cost)
			}
			var d headgate.Decision
			algorithm.Describe(&d, l, before, after, now, cost, fits)
			if l.Algorithm == headgate.LeakyBucket && fits {
				if want := v.until(0); d.Delay.Microseconds() != want.Int64() {
					t.Fatalf("%v, step %d: delay %v, want %v µs", l, step, d.Delay, want)
				}
			}
			if want := v.until(l.Burst - cost); d.RetryAfter.Microseconds() != want.Int64() {
				t.Fatalf("%v, step %d: retry after %v for a cost of %d, want %v µs", l, step, d.RetryAfter, cost, want)
			}
			if fits {
				s = after
				v.units.Add(v.units, new(big.Rat).SetInt64(cost))
			}
			if want := v.until(0); d.ResetAfter.Microseconds() != want.Int64() {
				t.Fatalf("%v, step %d: reset after %v, want %v µs", l, step, d.ResetAfter, want)
			}
			if want := l.Burst - ceil(v.units).Int64(); d.Remaining != want {
				t.Fatalf("%v, step %d: %d remain, want %d", l, step, d.Remaining, want)
			}
		}
	}
}

// TestBucketExtremes visits the corners where products are largest.
func TestBucketExtremes(t *testing.T) {
	const most = headgate.MaxCount
	century := headgate.MaxRefill.Microseconds()
	for _, c := range []struct {
		name            string
		limit           headgate.Limit
		state           algorithm.State
		now             headgate.Instant
		used, remaining int64
		reset           time.Duration
	}{
		{"the fastest rate, a moment later", headgate.Per(most, time.Microsecond), algorithm.State{Stamp: epoch, Used: most}, epoch + 1, 0, most, 0},
		{"the fastest rate, after 290,000 years", headgate.Per(most, time.Microsecond), algorithm.State{Stamp: 0, Used: most}, math.MaxInt64, 0, most, 0},
		{"the fastest rate, at once", headgate.Per(most, time.Microsecond), algorithm.State{Stamp: epoch, Used: most}, epoch, most, 0, time.Microsecond},
		{"the slowest rate, after 290,000 years", headgate.Per(1, headgate.MaxPeriod), algorithm.State{Stamp: 0, Used: 1}, math.MaxInt64, 0, 1, 0},
		{"the slowest rate, a moment early", headgate.Per(1, headgate.MaxPeriod), algorithm.State{Stamp: epoch, Used: 1}, epoch + headgate.Instant(headgate.MaxPeriod.Microseconds()) - 1, 1, 0, time.Microsecond},
		{"a century, to the moment", headgate.Per(1, headgate.MaxPeriod).WithBurst(100), algorithm.State{Stamp: epoch, Used: 100}, epoch, 100, 0, headgate.MaxRefill},
		{"a century later", headgate.Per(1, headgate.MaxPeriod).WithBurst(100), algorithm.State{Stamp: epoch, Used: 100}, epoch + headgate.Instant(century), 0, 100, 0},
		{"a century less a moment", headgate.Per(1, headgate.MaxPeriod).WithBurst(100), algorithm.State{Stamp: epoch, Used: 100}, epoch + headgate.Instant(century) - 1, 1, 99, time.Microsecond},
		{"far above a lowered limit", headgate.Per(1, headgate.MaxPeriod), algorithm.State{Stamp: epoch, Used: math.MaxUint32}, epoch, math.MaxUint32, 0, headgate.MaxRefill + time.Microsecond},
		{"a fraction of a faster rate", headgate.PerSecond(1), algorithm.State{Stamp: epoch, Used: 1, Extra: 999}, epoch + 1_000_000, 0, 1, 0},
		{"before its time", headgate.PerSecond(1), algorithm.State{Stamp: epoch, Used: 1}, epoch - 1<<60, 1, 0, time.Second},
		{"at the beginning of time", headgate.PerSecond(1), algorithm.State{Stamp: 0, Used: 1}, 0, 1, 0, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := one(t, c.limit)
			s := algorithm.Advance(l, c.state, c.now)
			if s.Used != c.used {
				t.Errorf("%d units are in use, want %d", s.Used, c.used)
			}
			var d headgate.Decision
			algorithm.Describe(&d, l, s, s, c.now, 1, algorithm.Fits(l, s, c.now, 1))
			if d.Remaining != c.remaining || d.ResetAfter != c.reset {
				t.Errorf("remaining %d, reset after %v; want %d, %v", d.Remaining, d.ResetAfter, c.remaining, c.reset)
			}
		})
	}
}

// TestRetryIsExact asks every algorithm, at random states and times, whether its
// RetryAfter is the first moment at which the cost fits.
func TestRetryIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	denied := 0
	for range 3000 {
		l := randomLimit(t, rng)
		if n := rng.IntN(3); n > 0 {
			plain := headgate.Limit{Algorithm: headgate.FixedWindow, Count: l.Count, Period: l.Period}
			if n == 2 {
				plain.Algorithm = headgate.SlidingCounter
			}
			l = one(t, plain)
		}
		var s algorithm.State
		now := epoch
		for range 40 {
			now += headgate.Instant(rng.Int64N(l.Micros()/4 + 2))
			if rng.IntN(15) == 0 {
				now -= headgate.Instant(rng.Int64N(3 * l.Micros()))
			}
			s = algorithm.Advance(l, s, now)
			cost := 1 + rng.Int64N(l.Capacity())
			if algorithm.Fits(l, s, now, cost) {
				s = algorithm.Charge(l, s, now, cost)
				continue
			}
			denied++
			var d headgate.Decision
			algorithm.Describe(&d, l, s, s, now, cost, false)
			then := now + headgate.Instant(d.RetryAfter.Microseconds())
			if algorithm.Fits(l, algorithm.Advance(l, s, then-1), then-1, cost) || !algorithm.Fits(l, algorithm.Advance(l, s, then), then, cost) {
				t.Fatalf("%s %v, state %+v at %d, cost %d: %v is not when it first fits", l.Algorithm, l, s, now, cost, d.RetryAfter)
			}
			free := now + headgate.Instant(d.ResetAfter.Microseconds())
			if algorithm.Advance(l, s, free-1).IsZero() || !algorithm.Advance(l, s, free).IsZero() {
				t.Fatalf("%s %v, state %+v at %d: %v is not when it is first free", l.Algorithm, l, s, now, d.ResetAfter)
			}
		}
	}
	if denied < 10_000 {
		t.Errorf("only %d denials were looked at", denied)
	}
}

// TestStepBack: a state that was taken back with the clock must be stored, and is
// said to be; the next step back does nothing more.
func TestStepBack(t *testing.T) {
	for _, limit := range []headgate.Limit{
		headgate.PerSecond(3),
		{Algorithm: headgate.LeakyBucket, Count: 3, Period: time.Second},
		{Algorithm: headgate.FixedWindow, Count: 3, Period: time.Second},
		{Algorithm: headgate.FixedWindow, Count: 3, Period: time.Second, Align: headgate.AlignFirst},
		{Algorithm: headgate.FixedWindow, Count: 3, Align: headgate.AlignMinute},
		{Algorithm: headgate.SlidingCounter, Count: 3, Period: time.Second},
	} {
		l := one(t, limit)
		s := algorithm.Charge(l, algorithm.State{}, epoch, 3)
		if algorithm.Moved(s, algorithm.Advance(l, s, epoch), epoch) {
			t.Errorf("%s %v: moved without a step", l.Algorithm, l)
		}
		for _, back := range []headgate.Instant{headgate.Instant(10 * l.Micros()), 1 << 50} {
			now := epoch - back
			moved := algorithm.Advance(l, s, now)
			if !algorithm.Moved(s, moved, now) || algorithm.Fits(l, moved, now, 1) {
				t.Errorf("%s %v, %d µs back: %+v became %+v; want it moved, and full", l.Algorithm, l, back, s, moved)
			}
			if again := algorithm.Advance(l, moved, now); again != moved || algorithm.Moved(moved, again, now) {
				t.Errorf("%s %v, %d µs back: %+v moved twice, to %+v", l.Algorithm, l, back, moved, again)
			}
		}
	}
	// A fraction of a microsecond is a step, too.
	l := one(t, headgate.PerSecond(3))
	s := algorithm.Advance(l, algorithm.State{Stamp: epoch, Used: 3}, epoch+333_334)
	if s.Extra == 0 {
		t.Fatalf("%+v has no fraction", s)
	}
	if moved := algorithm.Advance(l, s, s.Stamp); moved.Extra != 0 || !algorithm.Moved(s, moved, s.Stamp) {
		t.Errorf("%+v at its stamp became %+v, want it moved to it", s, moved)
	}
}

// TestAdvanceOfNothing: the zero state is free at all times, and nothing is given
// back to it.
func TestAdvanceOfNothing(t *testing.T) {
	for a := headgate.TokenBucket; a <= headgate.SlidingCounter; a++ {
		l := one(t, headgate.Limit{Algorithm: a, Count: 3, Period: time.Second})
		for _, now := range []headgate.Instant{0, epoch, math.MaxInt64 / 2} {
			if s := algorithm.Advance(l, algorithm.State{}, now); !s.IsZero() {
				t.Errorf("%s at %d: nothing became %+v", a, now, s)
			}
			if s := algorithm.Refund(l, algorithm.State{}, now, 3, now, 0); !s.IsZero() {
				t.Errorf("%s at %d: a refund to nothing became %+v", a, now, s)
			}
		}
	}
}
