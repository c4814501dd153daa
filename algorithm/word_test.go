package algorithm_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// wordLimit returns a limit whose states have Words, of any algorithm, alignment and period, and of a
// count below 2^bits.
func wordLimit(rng *rand.Rand, bits int) *headgate.Limit {
	for {
		l := headgate.Limit{
			Count:  1 + rng.Int64N(1<<rng.IntN(bits)),
			Period: []time.Duration{time.Microsecond, 7 * time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour, headgate.MaxPeriod - time.Microsecond}[rng.IntN(9)],
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
	for _, bits := range []int{30, 54} {
		t.Run(strconv.Itoa(bits), func(t *testing.T) { wordIsState(t, bits) })
	}
}

func wordIsState(t *testing.T, bits int) {
	rng := rand.New(rand.NewPCG(1, 2))
	words, highs, changed := map[headgate.Algorithm]int{}, map[headgate.Algorithm]int{}, map[headgate.Algorithm]int{}
	none, denied, large := 0, 0, 0
	for range 4000 {
		limit := wordLimit(rng, bits)
		kind, bucket := algorithm.KindOf(limit), limit.Algorithm <= headgate.LeakyBucket
		if bucket && kind.Count() != limit.Count {
			t.Fatalf("%v: the kind is %#x, and its count %d", limit, uint64(kind), kind.Count())
		}
		unit := max(1, limit.Micros()/limit.Count)
		var (
			origin = headgate.Instant(1_774_738_797_123_457 + rng.Int64N(1e12))
			now    = origin
			word   algorithm.Word
			high   uint64
			state  algorithm.State
		)
		for range 60 {
			now += headgate.Instant(rng.Int64N(1 + rng.Int64N(2*unit)*rng.Int64N(4)))
			if rng.IntN(20) == 0 && bits > 30 {
				now += headgate.Instant(rng.Int64N(limit.Micros()))
			}
			if rng.IntN(20) == 0 || algorithm.Micros(now-origin) >= algorithm.MaxAge {
				to := origin + headgate.Instant(rng.Int64N(int64(now-origin)+1))
				if algorithm.Micros(now-to) >= algorithm.MaxAge {
					to = now
				}
				free := word.FreeAt(kind, high, origin)
				word, high = word.Rebase(kind, high, origin, to)
				// One that was free must not seem to be in use for longer, or no sweep would drop it.
				if got := word.FreeAt(kind, high, to); got > free || got < free && free > to {
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
			var (
				next     algorithm.Word
				was      algorithm.State
				admitted bool
			)
			if bucket {
				next, admitted = word.DrawBucket(limit, high, origin, now, cost)
			} else {
				next, was, admitted = word.DrawWindow(limit, kind, high, origin, now, cost)
			}
			if next == algorithm.NoWord && fits {
				// The counter has another high from here on, and the State is needed to get there.
				changed[limit.Algorithm]++
				if !charged {
					after = before
				}
				if word, high = algorithm.WordOf(limit, after, origin); word == algorithm.NoWord {
					// Only windows have fields that may be too small.
					if none++; bucket || limit.Count < 2000 {
						t.Fatalf("%v: no Word for %+v, %d after the origin", limit, after, now-origin)
					}
					break
				}
				state = after
				continue
			}
			words[limit.Algorithm]++
			got.Limit, got.Allowed = limit, admitted
			if bucket {
				got.Remaining, got.RetryAfter, got.ResetAfter, got.Delay = word.DescribeBucket(limit, high, origin, now, cost, admitted, charged)
			} else {
				got.Remaining, got.RetryAfter, got.ResetAfter, got.Delay = algorithm.DescribeState(limit, was, now, cost, admitted, charged)
			}
			if got.At = now; got != want {
				t.Fatalf("%v, cost %d: %+v from the Word, %+v from the State", limit, cost, got, want)
			}
			if state = after; charged {
				word = next
			}
			if high > 0 {
				highs[limit.Algorithm]++
			}
			if limit.Count > 1_000_000_000 {
				large++
			}
			if free := word.FreeAt(kind, high, origin); free > now && free != now+headgate.Instant(want.ResetAfter.Microseconds()) || free <= now && want.ResetAfter != 0 {
				t.Fatalf("%v: the Word is free at %d, want %v after %d", limit, free, want.ResetAfter, now)
			}
			if rng.IntN(3) != 0 {
				continue
			}
			back := algorithm.Advance(limit, algorithm.StateOf(limit, kind, word, high, origin, now), now)
			if advanced := algorithm.Advance(limit, state, now); back != advanced {
				t.Fatalf("%v: the Word is the state %+v, want %+v", limit, back, advanced)
			}
			if word, high = algorithm.WordOf(limit, back, origin); word == algorithm.NoWord {
				t.Fatalf("%v: no Word for %+v", limit, back)
			}
		}
	}
	for _, a := range []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingCounter} {
		if words[a] < 10_000 || highs[a] < 1000 || changed[a] < 30 {
			t.Errorf("%v: %d decisions by Words, %d with a high, which %d changed; the test proves little", a, words[a], highs[a], changed[a])
		}
	}
	if big := bits > 30; denied < 10_000 || (large > 10_000) != big || (none > 100) != big {
		t.Errorf("%d costs were denied, %d decisions had large counts, and %d counters no Word; the test proves little", denied, large, none)
	}
}

// TestWordOfTheFullest: a bucket has a Word however much is in it, and whatever its rate. A window has none
// if its numbers have no room.
func TestWordOfTheFullest(t *testing.T) {
	const origin = headgate.Instant(1_774_738_797_123_457)
	last := origin + headgate.Instant(algorithm.MaxAge) - 1
	for _, count := range []int64{1, 7, headgate.MaxCount - 1, headgate.MaxCount} {
		limit := &headgate.MustRule("r", headgate.Per(count, headgate.MaxPeriod)).Limits()[0]
		s := algorithm.State{Stamp: last, Used: headgate.MaxCount} // the burst may have been lowered
		word, high := algorithm.WordOf(limit, s, origin)
		if got := algorithm.StateOf(limit, algorithm.KindOf(limit), word, high, origin, last); word == algorithm.NoWord || high>>35 != 0 || got != s {
			t.Errorf("%v: the state is %+v, want %+v; the high is %#x", limit, got, s, high)
		}
	}
	l := &headgate.MustRule("r", headgate.Limit{Algorithm: headgate.SlidingCounter, Count: headgate.MaxCount, Period: 24 * time.Hour}).Limits()[0]
	if word, high := algorithm.WordOf(l, algorithm.State{Stamp: origin, Used: headgate.MaxCount}, origin); word != algorithm.NoWord {
		t.Errorf("the Word is %d with the high %d, want none", word, high)
	}
}

// TestWordOfTheLongest: the Word of a bucket that takes longer to drain than can be told, because its
// burst was lowered, is its state as any other.
func TestWordOfTheLongest(t *testing.T) {
	origin := headgate.Instant(1_774_738_797_123_457)
	for _, l := range []headgate.Limit{headgate.Per(1, headgate.MaxPeriod), headgate.Per(2, headgate.MaxPeriod-time.Microsecond)} {
		limit := &headgate.MustRule("r", l).Limits()[0]
		s := algorithm.State{Stamp: origin + 5, Used: 1_000_000_000}
		word, high := algorithm.WordOf(limit, s, origin)
		if got := algorithm.StateOf(limit, algorithm.KindOf(limit), word, high, origin, origin+5); got != s {
			t.Errorf("%v: the state is %+v, want %+v", limit, got, s)
		}
		if free := word.FreeAt(algorithm.KindOf(limit), high, origin); free < origin+headgate.Instant(headgate.MaxRefill.Microseconds()) {
			t.Errorf("%v: free at %d", limit, free)
		}
		_, retry, reset, _ := algorithm.DescribeState(limit, s, origin+5, 1, false, false)
		if most := headgate.MaxRefill + time.Microsecond; retry != most || reset != most {
			t.Errorf("%v: retry after %v and reset after %v, want %v", limit, retry, reset, most)
		}
	}
}
