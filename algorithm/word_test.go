package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// wordLimit returns a limit whose states have Words, of any algorithm, alignment, count and period.
func wordLimit(rng *rand.Rand) *headgate.Limit {
	for {
		l := headgate.Limit{
			Count:  1 + rng.Int64N(1<<rng.IntN(30)),
			Period: []time.Duration{time.Microsecond, 7 * time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour}[rng.IntN(8)],
		}
		switch rng.IntN(5) {
		case 0:
			l.Algorithm = headgate.SlidingCounter
		case 1:
			l.Algorithm, l.Align = headgate.FixedWindow, headgate.AlignUTC+headgate.Alignment(rng.IntN(8))
			if l.Align >= headgate.AlignMinute {
				l.Period = 0
			}
		default:
			l.Algorithm = []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket}[rng.IntN(2)]
			if rng.IntN(2) == 0 {
				l.Burst = 1 + rng.Int64N(min(3*l.Count, headgate.MaxCount))
			}
		}
		if rule, err := headgate.NewRule("r", l); err == nil && algorithm.KindOf(&rule.Limits()[0]) != 0 {
			return &rule.Limits()[0]
		}
	}
}

// TestWordIsState: under a clock that never steps back, a counter that is kept as a Word decides in
// every field as one that is kept as a State, and can become one at any time and be a Word again,
// and count from another origin.
func TestWordIsState(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	words, none, denied := map[headgate.Algorithm]int{}, 0, 0
	for range 4000 {
		limit := wordLimit(rng)
		unit := max(1, limit.Micros()/limit.Count)
		var (
			origin = headgate.Instant(1_774_738_797_123_457 + rng.Int64N(1e12))
			now    = origin
			word   algorithm.Word
			state  algorithm.State
		)
		for range 60 {
			now += headgate.Instant(rng.Int64N(1 + rng.Int64N(2*unit)*rng.Int64N(4)))
			if rng.IntN(20) == 0 || algorithm.Micros(now-origin) >= algorithm.MaxAge {
				to := origin + headgate.Instant(rng.Int64N(int64(now-origin)+1))
				if algorithm.Micros(now-to) >= algorithm.MaxAge {
					to = now
				}
				free := word.FreeAt(algorithm.ScaleOf(limit), origin)
				word = word.Rebase(algorithm.ScaleOf(limit), origin, to)
				// One that was free must not seem to be in use for longer, or no sweep would drop it.
				if got := word.FreeAt(algorithm.ScaleOf(limit), to); got > free || got < free && free > to {
					t.Fatalf("%v: the Word is free at %d, counted from %d at %d", limit, free, to, got)
				}
				origin = to
			}
			cost := 1 + rng.Int64N(1+rng.Int64N(limit.Capacity()))
			if rng.IntN(20) == 0 {
				cost = limit.Capacity() + rng.Int64N(2)
			}
			var want, got headgate.Decision
			before := algorithm.Advance(limit, state, now)
			after, fits := before, algorithm.Fits(limit, before, now, cost)
			charged := fits && rng.IntN(10) != 0
			if charged {
				after = algorithm.Charge(limit, before, now, cost)
			}
			if !fits {
				denied++
			}
			algorithm.Describe(&want, limit, before, after, now, cost, fits)
			next, was, admitted := word.Draw(limit, origin, now, cost)
			if next == algorithm.NoWord {
				// Only windows have fields that may be too small.
				if none++; limit.Algorithm <= headgate.LeakyBucket || limit.Count < 2000 {
					t.Fatalf("%v: no Word for %+v, %d after the origin", limit, after, now-origin)
				}
				break
			}
			words[limit.Algorithm]++
			got.Limit, got.Allowed = limit, admitted
			got.Remaining, got.RetryAfter, got.ResetAfter, got.Delay = word.Describe(limit, was, origin, now, cost, admitted, charged)
			if got.At = now; got != want {
				t.Fatalf("%v, cost %d: %+v from the Word, %+v from the State", limit, cost, got, want)
			}
			if state = after; charged {
				word = next
			}
			if free := word.FreeAt(algorithm.ScaleOf(limit), origin); free > now && free != now+headgate.Instant(want.ResetAfter.Microseconds()) || free <= now && want.ResetAfter != 0 {
				t.Fatalf("%v: the Word is free at %d, want %v after %d", limit, free, want.ResetAfter, now)
			}
			if rng.IntN(3) != 0 {
				continue
			}
			back := algorithm.Advance(limit, algorithm.StateOf(limit, algorithm.KindOf(limit), word, origin, now), now)
			if advanced := algorithm.Advance(limit, state, now); back != advanced {
				t.Fatalf("%v: the Word is the state %+v, want %+v", limit, back, advanced)
			}
			if word = algorithm.WordOf(limit, back, origin); word == algorithm.NoWord {
				t.Fatalf("%v: no Word for %+v", limit, back)
			}
		}
	}
	for _, a := range []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingCounter} {
		if words[a] < 10_000 {
			t.Errorf("%d decisions by Words of %v; the test proves little", words[a], a)
		}
	}
	if denied < 10_000 || none == 0 {
		t.Errorf("%d costs were denied, and %d counters had no Word; the test proves little", denied, none)
	}
}

// TestWhichHaveWords: all buckets do that anybody is likely to write, whatever their numbers.
func TestWhichHaveWords(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		limit headgate.Limit
		want  bool
	}{
		{headgate.Per(1, 365*day), true},
		{headgate.Per(1_000_000, time.Hour), true},
		{headgate.Per(10_000_000, time.Second), true},
		{headgate.Per(100_000_000, time.Minute), true},
		{headgate.Per(headgate.MaxCount, day), true},
		{headgate.Per(headgate.MaxCount, 366*day), true},
		{headgate.Per(999_999_937, time.Hour), true}, // a prime
		{headgate.Per(123_456_789, day), true},
		{headgate.Per(49_999_999, day), true},
		{headgate.Per(1_234_567, 30*day), true},
		{headgate.Per(49_990_000, 30*day), true},
		{headgate.Per(10<<20, 30*day), true},
		{headgate.Per(1, 365*day).WithBurst(100), true},
		{headgate.Per(999_999_937, day), false},
		{headgate.Per(9_999_991, 30*day), false},
		{headgate.Blocking(1, time.Hour, time.Hour, time.Hour), false},
		{headgate.Sliding(1, time.Hour), false},
	} {
		limits := []headgate.Limit{headgate.PerMinute(1), c.limit}
		if got := algorithm.KindOf(&headgate.MustRule("r", limits...).Limits()[1]) != 0; got != c.want {
			t.Errorf("%v has Words: %t, want %t", &c.limit, got, c.want)
		}
	}
}
