package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// TestSharedBucket: whatever lists take turns on a bucket and give units back, what no list has
// given back is never more than its own burst and rate admit, and of all together no more than the
// largest burst and the fastest rate.
func TestSharedBucket(t *testing.T) {
	type charge struct {
		at   headgate.Instant
		cost int64
		list int
	}
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 6))
		lists := make([]headgate.Limit, 2+rng.IntN(6))
		var fastest, largest int64
		for i := range lists {
			count := 1 + rng.Int64N(4<<rng.IntN(9))
			if seed%3 == 0 {
				count = 46_300 + rng.Int64N(80) // with and without marks
			}
			lists[i] = headgate.MustRule("r", headgate.Per(count, time.Second).WithBurst(1+rng.Int64N(60))).Limits()[0]
			fastest, largest = max(fastest, count), max(largest, lists[i].Capacity())
		}
		var slots [algorithm.BucketSlots]algorithm.State
		save := func(l *headgate.Limit, c algorithm.Counter) {
			all, changed := c.Slots(l)
			for i := range all {
				if changed&(1<<i) != 0 {
					slots[i] = all[i]
				}
			}
		}
		now := headgate.Instant(1e15)
		load := func(l *headgate.Limit) algorithm.Counter {
			c, moved := algorithm.LoadCounter(l, false, func(i int) algorithm.State { return slots[i] }).Advance(l, now)
			if moved {
				save(l, c)
			}
			return c
		}
		var charges []charge // the cost of one that was given back is 0
		for range 120 {
			i := rng.IntN(len(lists))
			now += headgate.Instant(rng.Int64N(2 * (1_000_000/lists[rng.IntN(len(lists))].Count + 1)))
			c := load(&lists[i])
			if rng.IntN(4) == 0 && len(charges) > 0 {
				back := &charges[len(charges)-1-rng.IntN(min(len(charges), 8))]
				l := &lists[back.list]
				save(l, load(l).Settle(l, now, -back.cost, back.at, back.cost))
				back.cost = 0
				continue
			}
			cost := 1 + rng.Int64N(min(lists[i].Capacity(), 12))
			if c.Fits(&lists[i], now, cost) {
				save(&lists[i], c.Charge(&lists[i], now, cost))
				charges = append(charges, charge{now, cost, i})
			}
		}
		hold := func(counts func(list int) bool, count, burst int64, of string) {
			level, at := 0.0, headgate.Instant(0)
			for _, c := range charges {
				if !counts(c.list) || c.cost == 0 {
					continue
				}
				level = max(0, level-float64(count)*float64(c.at-at)/1e6) + float64(c.cost)
				at = c.at
				if level > float64(burst)+1e-3 {
					t.Fatalf("seed %d: %s: %.3f units are in use of a burst of %d", seed, of, level, burst)
				}
			}
		}
		for i := range lists {
			hold(func(list int) bool { return list == i }, lists[i].Count, lists[i].Capacity(), lists[i].String())
		}
		hold(func(int) bool { return true }, fastest, largest, "all lists")
	}
}
