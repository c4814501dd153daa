package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// TestWordIsState: under a clock that never steps back, a bucket that is kept as a Word decides in
// every field as one that is kept as a State, and can become one at any time and be a Word again.
func TestWordIsState(t *testing.T) {
	const origin = 1_774_738_797_123_457
	rng := rand.New(rand.NewPCG(1, 2))
	rates, denied := 0, 0
	for range 3000 {
		l := headgate.Limit{
			Algorithm: []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket}[rng.IntN(2)],
			Count:     1 + rng.Int64N(1<<rng.IntN(25)),
			Period:    []time.Duration{time.Microsecond, 7 * time.Microsecond, time.Second, time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour}[rng.IntN(7)],
		}
		if rng.IntN(2) == 0 {
			l.Burst = 1 + rng.Int64N(3*l.Count)
		}
		rule := headgate.MustRule("r", l)
		limit := &rule.Limits()[0]
		if !algorithm.HasWord(limit) {
			continue
		}
		rates++
		num, den := limit.Rate()
		unit := den/num + 1 // µs
		var (
			now   = origin + headgate.Instant(rng.Int64N(1e12))
			word  algorithm.Word
			state algorithm.State
		)
		for step := range 60 {
			if now += headgate.Instant(rng.Int64N(1 + rng.Int64N(2*unit)*rng.Int64N(4))); now-origin >= 1<<50 {
				break
			}
			cost := 1 + rng.Int64N(1+rng.Int64N(limit.Capacity()))
			if rng.IntN(20) == 0 {
				cost = limit.Capacity() + rng.Int64N(2)
			}
			var want, got headgate.Decision
			before := algorithm.Advance(limit, state, now)
			after, fits := before, algorithm.Fits(limit, before, now, cost)
			if fits {
				after = algorithm.Charge(limit, before, now, cost)
				state = after
			} else {
				denied++
			}
			algorithm.Describe(&want, limit, before, after, now, cost, fits)
			draw, known := algorithm.DrawFrom(limit, algorithm.Micros(now-origin), cost)
			next, fits := draw.Take(word)
			got.Limit, got.Allowed = limit, fits
			got.Remaining, got.RetryAfter, got.ResetAfter, got.Delay = draw.Describe(limit, word, cost, fits)
			if got.At = now; !known || got != want {
				t.Fatalf("%v, step %d, cost %d: %+v from the Word (known: %t), %+v from the State", limit, step, cost, got, known, want)
			}
			if fits {
				word = next
			}
			if rng.IntN(3) != 0 {
				continue
			}
			stored := algorithm.OfWord(limit, limit.Count, word, now, origin)
			plain, ok := algorithm.Plain(limit, stored)
			if advanced := algorithm.Advance(limit, state, now); !ok || plain != advanced {
				t.Fatalf("%v, step %d: the Word is the state %+v (plain: %t), want %+v", limit, step, plain, ok, advanced)
			}
			if word, known = algorithm.WordOf(limit, plain, origin); !known {
				t.Fatalf("%v, step %d: no Word for %+v", limit, step, plain)
			}
			if reset := word.FreeAt(num); word != 0 && reset != algorithm.Micros(now-origin)+algorithm.Micros(want.ResetAfter.Microseconds()) {
				t.Fatalf("%v, step %d: the Word is free at %d, want %d", limit, step, reset, algorithm.Micros(now-origin)+algorithm.Micros(want.ResetAfter.Microseconds()))
			}
		}
	}
	if rates < 1000 || denied < 10_000 {
		t.Errorf("%d rates had Words, and %d costs were denied; the test proves little", rates, denied)
	}
}
