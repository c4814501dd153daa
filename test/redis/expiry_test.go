package redis_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestExpiry: a key lives until all of its limits are free, and little longer, whatever was done to it.
// Within a window, a charge does not set anew when its key expires.
func TestExpiry(t *testing.T) {
	limit := func(a headgate.Algorithm, align headgate.Alignment, period time.Duration) headgate.Limit {
		return headgate.Limit{Algorithm: a, Count: 20, Period: period, Align: align}
	}
	short, long := 150*time.Millisecond, 400*time.Millisecond
	first := limit(headgate.FixedWindow, headgate.AlignFirst, short)
	lists := [][]headgate.Limit{
		{first},
		{limit(headgate.FixedWindow, headgate.AlignUTC, long)},
		{limit(headgate.SlidingCounter, headgate.AlignUTC, short)},
		{headgate.Per(20, long)},
		{first, headgate.Per(20, long)},
		{first, limit(headgate.SlidingCounter, headgate.AlignUTC, long), headgate.Per(20, short)},
		{headgate.Per(20, short), limit(headgate.FixedWindow, headgate.AlignUTC, long)},
	}
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.Open(t, dial(t, s), nil, redis.Prefix("expiry:"))
		pttl := func(key string) int64 {
			t.Helper()
			ttl, err := s.Do(t.Context(), "PTTL", key)
			left, ok := ttl.(int64)
			if err != nil || !ok || left == -1 {
				t.Fatalf("PTTL %s: %v, %v", key, ttl, err)
			}
			return left
		}
		var rules []*headgate.Rule
		for i, limits := range lists {
			rules = append(rules, headgate.MustRule(fmt.Sprint("r", i), limits...))
		}
		random, end := rand.New(rand.NewPCG(1, 2)), time.Now().Add(3*time.Second)
		for step := 0; time.Now().Before(end) || step < 200; step++ {
			r := rules[random.IntN(len(rules))]
			op := []headgate.Op{headgate.OpTake, headgate.OpTake, headgate.OpTake, headgate.OpRefund, headgate.OpPeek}[random.IntN(5)]
			began := time.Now()
			d, err := store.Take(t.Context(), op, []headgate.Check{{Rule: r, Key: "k", Cost: 1 + random.Int64N(4)}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			left := max(0, pttl("expiry:"+r.Name()+" k"))
			took := time.Since(began)
			reset := time.Duration(0)
			for i := range d {
				reset = max(reset, d[i].ResetAfter)
			}
			// The decision, and then the question how long the key lives, were some time within took. A
			// counter is given up to a period more.
			if most, least := reset+long+25*time.Millisecond, reset-took; left > most.Milliseconds() || left < least.Milliseconds() {
				t.Fatalf("step %d, %v of %v: all is free after %v, and after at most %v its key lives for %d ms", step, op, r, reset, took, left)
			}
			if random.IntN(8) == 0 {
				time.Sleep(time.Duration(random.IntN(120)) * time.Millisecond)
			}
		}

		for _, l := range []headgate.Limit{
			limit(headgate.FixedWindow, headgate.AlignFirst, time.Hour),
			limit(headgate.FixedWindow, headgate.AlignYear, 0),
			limit(headgate.SlidingCounter, headgate.AlignUTC, 366*24*time.Hour),
		} {
			for _, limits := range [][]headgate.Limit{{l}, {headgate.PerSecond(20), l}} {
				r := headgate.MustRule("kept", limits...)
				for range 2 {
					if d := stores.Allow(t, store, r, "k"); !d.Allowed {
						t.Fatalf("%+v", d)
					}
					if _, err := s.Do(t.Context(), "PEXPIRE", "expiry:kept k", "1234567890"); err != nil {
						t.Fatal(err)
					}
				}
				if d := stores.Allow(t, store, r, "k"); !d.Allowed {
					t.Fatalf("%+v", d)
				}
				if left := pttl("expiry:kept k"); left < 1_200_000_000 || left > 1_234_567_890 {
					t.Errorf("%v: when the key expires was set anew, to %d ms", r, left)
				}
				if _, err := s.Do(t.Context(), "DEL", "expiry:kept k"); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
