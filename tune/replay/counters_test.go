package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/memory"
)

// lists are lists of limits of a rule, which share counters.
var lists = map[string][2][]headgate.Limit{
	"token_bucket":    {{{Count: 5, Period: 10 * time.Second}}, {{Count: 7, Burst: 9, Period: 10 * time.Second}}},
	"large bucket":    {{{Count: 999_999_937, Period: 3 * time.Second}}, {{Count: 7, Period: 3 * time.Second}}},
	"leaky_bucket":    {{{Algorithm: headgate.LeakyBucket, Count: 5, Period: 10 * time.Second}}, {{Algorithm: headgate.LeakyBucket, Count: 50, Period: 10 * time.Second}}},
	"fixed_window":    {{{Algorithm: headgate.FixedWindow, Count: 5, Period: 10 * time.Second}}, {{Algorithm: headgate.FixedWindow, Count: 3, Period: 10 * time.Second}}},
	"sliding_counter": {{{Algorithm: headgate.SlidingCounter, Count: 5, Period: 10 * time.Second}}, {{Algorithm: headgate.SlidingCounter, Count: 9, Period: 10 * time.Second}}},
	"sliding_window": {
		{{Algorithm: headgate.SlidingWindow, Count: 5, Period: 10 * time.Second}, {Algorithm: headgate.SlidingWindow, Count: 2, Period: time.Second}},
		{{Algorithm: headgate.SlidingWindow, Count: 12, Period: 30 * time.Second}},
	},
	"penalty": {
		{{Count: 2, Period: 10 * time.Second}, {Algorithm: headgate.Penalty, Count: 2, Period: 20 * time.Second, Block: 5 * time.Second, MaxBlock: time.Minute}},
		{{Count: 4, Period: 10 * time.Second}},
	},
}

// TestCountersAreASmallStore: however often idle counters are dropped, every decision, and every
// refund, is that of the memory store. As many counters are there as are in use, about.
func TestCountersAreASmallStore(t *testing.T) {
	for name, two := range lists {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 2))
			var rules [2]*headgate.Rule
			for i := range rules {
				rules[i] = headgate.MustRule("shared", two[i]...)
			}
			everyone := headgate.MustRule("everyone", headgate.PerSecond(4))
			now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC).UnixMicro()
			store := memory.New(memory.Clock(func() int64 { return now }))
			const most = 400
			c := newCounters(2, most)
			held := make(map[string]*handles)
			denied, largest := 0, 0
			for n := range race.Fewer(100_000) {
				now += rng.Int64N(500_000)
				// Every key comes some times, and never again.
				key := fmt.Sprint(n/200, " ", rng.IntN(9))
				checks := []headgate.Check{{Rule: rules[rng.IntN(2)], Key: key, Cost: rng.Int64N(3)}, {Rule: everyone, Shadow: rng.IntN(2) == 0}}
				id := fmt.Sprintf("%s %p", key, checks[0].Rule)
				if held[id] == nil {
					held[id] = new(handles)
				}
				at := c.of(held[id], checks, headgate.Instant(now))
				var got []headgate.Decision
				refused := c.take(1, headgate.Instant(now), checks, at, &got, true)
				want, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
				if err != nil {
					t.Fatal(err)
				}
				for i := range want {
					if got[i] != want[i] {
						t.Fatalf("request %d, decision %d:\ngot  %+v\nwant %+v", n, i, got[i], want[i])
					}
				}
				if admits(checks, refused) != headgate.NewVerdict(want).Allowed {
					t.Fatalf("request %d: refused by %b, decisions %+v", n, refused, want)
				}
				if refused != 0 {
					denied++
				} else if rng.IntN(5) == 0 {
					c.refund(1, headgate.Instant(now), &checks[0], at)
					checks[0].At = headgate.Instant(now)
					if _, err := store.Take(t.Context(), headgate.OpRefund, checks[:1], nil); err != nil {
						t.Fatal(err)
					}
				}
				largest = max(largest, c.made)
			}
			if denied == 0 || c.generation == 1 || c.shared != 0 || largest > most {
				t.Errorf("%d denied, %d sweeps, %d decisions by shared counters, %d counters at most", denied, c.generation-1, c.shared, largest)
			}
		})
	}
}

// TestCountersShare: with more keys in use than there may be counters, keys share counters, so none is
// admitted more than its limit, and memory stays bounded.
func TestCountersShare(t *testing.T) {
	for _, name := range []string{"token_bucket", "sliding_window"} {
		rule := headgate.MustRule("shared", lists[name][0]...)
		const most, keys = 300, 5000
		c := newCounters(1, most)
		admitted := make(map[string]int)
		for n := range 3 * keys {
			key := fmt.Sprint(n % keys)
			checks := []headgate.Check{{Rule: rule, Key: key}}
			at := c.of(new(handles), checks, headgate.Instant(1_000_000+n))
			if c.take(spread, headgate.Instant(1_000_000+n), checks, at, nil, false) == 0 {
				admitted[key]++
			}
		}
		for key, n := range admitted {
			if n > int(rule.Limits()[0].Count) {
				t.Errorf("%s: the key %s was admitted %d times", name, key, n)
			}
		}
		if c.shared == 0 || c.made > most+1<<10*len(rule.Limits()) {
			t.Errorf("%s: %d decisions by shared counters, %d counters", name, c.shared, c.made)
		}
	}
}
