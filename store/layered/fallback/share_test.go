package fallback_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/layered/internal/layertest"
)

// randomLimit is one of every algorithm that counts units.
func randomLimit(r *rand.Rand) headgate.Limit {
	l := headgate.Limit{Count: 1 + r.Int64N(40), Period: time.Duration(1+r.IntN(20)) * 100 * time.Millisecond}
	switch r.IntN(5) {
	case 0:
		l.Algorithm = headgate.SlidingWindow
	case 1:
		l.Algorithm = headgate.SlidingCounter
	case 2:
		l.Algorithm, l.Align = headgate.FixedWindow, headgate.Alignment(r.IntN(2))
	case 3:
		l.Algorithm, l.Burst = headgate.LeakyBucket, r.Int64N(60)
	case 4:
		l.Burst = r.Int64N(60)
	}
	return l
}

// admission is when units were admitted.
type admission struct {
	at    time.Time
	units int64
}

// most is the most units that a limit with this count and burst admits in a time of
// this length, wherever it begins.
func most(l *headgate.Limit, count, burst int64, length time.Duration) int64 {
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		return burst + int64(length)*count/int64(l.Period)
	case headgate.SlidingWindow:
		return count * (int64(length)/int64(l.Period) + 1)
	case headgate.FixedWindow:
		// From the very end of one to the very beginning of another.
		return count * (int64(length)/int64(l.Period) + 2)
	default:
		return 2*count - 1 + count*(int64(length)/int64(l.Period))
	}
}

// TestNeverMoreThanTheShare: whatever the limits, the traffic and what was used
// before, a node without its store admits at most its share.
func TestNeverMoreThanTheShare(t *testing.T) {
	for seed := range uint64(150) {
		bubbletest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			nodes := 1 + r.Int64N(6)
			limits := make([]headgate.Limit, 1+r.IntN(3))
			for i := range limits {
				limits[i] = randomLimit(r)
			}
			c := headgate.Check{Rule: headgate.MustRule("r", limits...), Key: "k", Hints: headgate.Hints{OnError: headgate.OnErrorLocal}}
			primary := layertest.NewScripted()
			f := layertest.Fallback(t, primary, fallback.Options{Nodes: nodes})
			for range r.IntN(200) {
				c.Cost = 1 + r.Int64N(3)
				layertest.Take(t, f.Store(), c)
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
			}
			layertest.Fail(t, f, primary, layertest.Refuses)
			var admitted []admission
			for range 400 {
				c.Cost = 1 + r.Int64N(3)
				v := layertest.Take(t, f.Store(), c)
				if v.Allowed {
					admitted = append(admitted, admission{time.Now(), c.Cost})
				}
				for i := range v.Decisions {
					if d := &v.Decisions[i]; d.Source != headgate.SourceLocal || d.Remaining < 0 || d.Remaining > d.Limit.Capacity() {
						t.Fatalf("got %+v", d)
					}
				}
				if never := v.RetryAfter == headgate.Never; never != (c.Cost > smallest(c.Rule)) && !v.Allowed {
					t.Fatalf("%s among %d nodes: a cost of %d may come back after %v", c.Rule, nodes, c.Cost, v.RetryAfter)
				}
				time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
			}
			for i := range limits {
				l := &limits[i]
				count, burst := max(1, l.Count/nodes), max(1, l.Capacity()/nodes)
				for from := range admitted {
					sum := int64(0)
					for _, a := range admitted[from:] {
						sum += a.units
						if length := a.at.Sub(admitted[from].at); sum > most(l, count, burst, length) {
							t.Fatalf("%s (%v) among %d nodes admitted %d units within %v", l, l.Algorithm, nodes, sum, length)
						}
					}
				}
			}
		})
	}
}

// smallest is the least capacity of a rule's limits.
func smallest(r *headgate.Rule) int64 {
	least := int64(headgate.MaxCount)
	for i := range r.Limits() {
		least = min(least, r.Limits()[i].Capacity())
	}
	return least
}

// TestShares: the numbers, for every algorithm.
func TestShares(t *testing.T) {
	penalty := headgate.Blocking(5, time.Minute, time.Minute, time.Hour)
	for _, tt := range []struct {
		limit headgate.Limit
		nodes int64
		want  string
	}{
		{headgate.PerMinute(100), 1, "100 per 1m"},
		{headgate.PerMinute(100), 4, "25 per 1m"},
		{headgate.PerMinute(100), 3, "33 per 1m"},
		{headgate.PerMinute(2), 3, "1 per 1m"},
		{headgate.PerMinute(100).WithBurst(10), 4, "25 per 1m burst 2"},
		{headgate.PerMinute(100).WithBurst(3), 4, "25 per 1m burst 1"},
		{headgate.PerMinute(10).WithBurst(1000), 4, "2 per 1m burst 250"},
		{headgate.Sliding(600, 10*time.Minute), 7, "85 per 10m"},
		{headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 9, Period: time.Hour}, 2, "4 per 1h"},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 9, Align: headgate.AlignMonth}, 2, "4 per calendar month"},
		{headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 9, Period: time.Second, Burst: 90}, 9, "1 per 1s burst 10"},
		// Its share would take 150 years to fill.
		{headgate.Limit{Count: 3, Period: 366 * 24 * time.Hour, Burst: 300}, 2, "1 per 366d"},
	} {
		bubbletest.Test(t, func(t *testing.T) {
			primary := layertest.NewScripted()
			f := layertest.Fallback(t, primary, fallback.Options{Nodes: tt.nodes, Default: headgate.OnErrorLocal})
			layertest.Fail(t, f, primary, layertest.Refuses)
			c := headgate.Check{Rule: headgate.MustRule("r", tt.limit), Key: "k"}
			if got := layertest.Take(t, f.Store(), c).Decisions[0].Limit.String(); got != tt.want {
				t.Errorf("%s among %d nodes: %s, want %s", &tt.limit, tt.nodes, got, tt.want)
			}
			c.Rule = headgate.MustRule("p", tt.limit, penalty)
			if got := layertest.Take(t, f.Store(), c).Decisions[1].Limit.String(); got != penalty.String() {
				t.Errorf("the penalty became %s", got)
			}
		})
	}
}

// TestWarm: what a node has admitted while the store was well counts when it is
// gone, in every limit of a rule, even beyond its share.
func TestWarm(t *testing.T) {
	limits := map[string]headgate.Limit{
		"token bucket":    headgate.Per(20, 300*24*time.Hour),
		"leaky bucket":    {Algorithm: headgate.LeakyBucket, Count: 20, Period: 300 * 24 * time.Hour},
		"fixed window":    {Algorithm: headgate.FixedWindow, Count: 20, Period: 24 * time.Hour, Align: headgate.AlignFirst},
		"sliding window":  headgate.Sliding(20, 24*time.Hour),
		"sliding counter": {Algorithm: headgate.SlidingCounter, Count: 20, Period: 24 * time.Hour},
	}
	for name, limit := range limits {
		for _, tt := range []struct{ before, want int64 }{{0, 10}, {1, 9}, {4, 6}, {10, 0}, {15, 0}, {20, 0}} {
			t.Run(fmt.Sprint(name, " after ", tt.before), func(t *testing.T) {
				bubbletest.Test(t, func(t *testing.T) {
					primary := layertest.NewScripted()
					f := layertest.Fallback(t, primary, fallback.Options{Nodes: 2, Default: headgate.OnErrorLocal})
					short := limit
					short.Count, short.Period = 6, time.Second
					c := headgate.Check{Rule: headgate.MustRule("r", short, limit), Key: "k"}
					for n := int64(0); n < tt.before; n++ {
						if !layertest.Take(t, f.Store(), c).Allowed {
							t.Fatal("denied by the store")
						}
						if n%6 == 5 { // more at once than the share of the short limit
							time.Sleep(3 * time.Second)
						}
					}
					time.Sleep(3 * time.Second)
					layertest.Fail(t, f, primary, layertest.Refuses)
					var got int64
					for range 30 {
						got += layertest.Spend(t, f.Store(), c)
						time.Sleep(3 * time.Second)
					}
					if got != tt.want {
						t.Errorf("%d units were admitted besides, want %d", got, tt.want)
					}
				})
			})
		}
	}
}

// TestManyRules: rules that nobody asks about any more are not kept.
func TestManyRules(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Nodes: 2, Default: headgate.OnErrorLocal})
		layertest.Fail(t, f, primary, layertest.Refuses)
		// Each of them anew, as some doors do; the counter is one and the same.
		var got int64
		for range 10_000 {
			if layertest.Take(t, f.Store(), headgate.Check{Rule: headgate.MustRule("r", headgate.PerHour(100)), Key: "k"}).Allowed {
				got++
			}
		}
		if got != 50 || f.Stats().Debts != 1 {
			t.Errorf("%d units were admitted, want 50; %d debts", got, f.Stats().Debts)
		}
	})
}
