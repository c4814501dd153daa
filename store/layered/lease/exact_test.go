package lease_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/layered/lease"
	"github.com/headgate/headgate/store/memory"
)

// bucketOf is a bucket that was only ever charged what callers were admitted, in fractions.
type bucketOf struct {
	limit    *headgate.Limit
	admitted []passage // as of when the store charged them
}

// inUse is how much of it is in use.
func (b *bucketOf) inUse(now int64) *big.Rat {
	slices.SortStableFunc(b.admitted, func(x, y passage) int { return int(x.at - y.at) })
	num, den := b.limit.Rate()
	level, last := new(big.Rat), int64(0)
	drain := func(to int64) {
		level.Sub(level, big.NewRat((to-last)*num, den))
		if level.Sign() < 0 {
			level.SetInt64(0)
		}
		last = to
	}
	for i, a := range b.admitted {
		if i == 0 {
			last = a.at
		}
		drain(a.at)
		level.Add(level, big.NewRat(a.units, 1))
	}
	drain(now)
	return level
}

// TestLeaseLosesNothing: where nothing fails, a bucket has in use exactly what was admitted,
// when all leases have ended, as if nothing had ever been taken in advance. No unit is lost.
func TestLeaseLosesNothing(t *testing.T) {
	for name, limits := range map[string][]headgate.Limit{
		"slow":        {headgate.Per(10_000, 300*24*time.Hour)},
		"1 a second":  {headgate.PerMinute(60).WithBurst(10_000)},
		"fast":        {headgate.PerSecond(10_000)},
		"odd":         {headgate.Per(7919, 13*time.Second).WithBurst(6007)},
		"two buckets": {headgate.PerSecond(10_000), headgate.PerHour(40_000)},
	} {
		for seed := range uint64(race.Fewer(8)) {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				bubbletest.Test(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, 4))
					store := memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() }))
					l := open(t, store, lease.Options{})
					c := headgate.Check{Rule: headgate.MustRule("r", limits...), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}
					strict := l.Enforced(c.Rule)
					used := int64(0) // of leases
					var buckets []bucketOf
					for i := range strict.Limits() {
						buckets = append(buckets, bucketOf{limit: &strict.Limits()[i]})
					}
					// Bursts of 3,000 requests in all, with silences in which leases end unused.
					for range 10 {
						for range 300 {
							c.Cost = 1 + rng.Int64N(2)
							v := layertest.Take(t, l.Store(), c)
							if v.Allowed {
								for i := range buckets {
									buckets[i].admitted = append(buckets[i].admitted, passage{int64(v.Decisions[0].At), c.Cost})
								}
							}
							if v.Decisions[0].Source == headgate.SourceLease {
								used += c.Cost
							}
							time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
						}
						time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
					}
					time.Sleep(1500 * time.Millisecond) // all that is held goes back
					left, err := store.Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: strict, Key: "k"}}, nil)
					if err != nil {
						t.Fatal(err)
					}
					for i, d := range left {
						// The store rounds up to whole units, and times to microseconds.
						want, _ := buckets[i].inUse(int64(d.At)).Float64()
						if got := float64(d.Limit.Capacity() - d.Remaining); got < want-0.001 || got >= want+1.02 {
							t.Errorf("%v: %v units in use, want %.3f", d.Limit, got, want)
						}
					}
					if s := l.Stats(); s.Lost != 0 || s.Held != 0 || s.Returned == 0 || s.Taken != s.Returned+s.Refilled+used {
						t.Errorf("stats: %+v", s)
					}
				})
			})
		}
	}
}

// TestLeaseCountsWhatIsCharged: a node has in use what the store has charged for it, and no
// shadow that the store has refused, or it would give back what others have used.
func TestLeaseCountsWhatIsCharged(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() }))
		l := open(t, store, lease.Options{})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Per(10_000, 300*24*time.Hour)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}, Shadow: true}
		for l.OwnUse(c.Rule, c.Key) < 0 {
			hot(t, l.Store(), c, 1)
		}
		all := headgate.Check{Rule: l.Enforced(c.Rule), Key: "k", Cost: 9000}
		if !layertest.Take(t, store, all).Allowed {
			t.Fatal("nothing is left")
		}
		strict := headgate.Check{Rule: headgate.MustRule("strict", headgate.PerSecond(1000)), Key: "k"}
		for _, beside := range [][]headgate.Check{{c}, {strict, c}} {
			beside[len(beside)-1].Cost = 5000 // more than is left
			before := l.OwnUse(c.Rule, c.Key)
			for range 10 {
				if _, err := l.Store().Take(t.Context(), headgate.OpTake, beside, nil); err != nil {
					t.Fatal(err)
				}
			}
			if after := l.OwnUse(c.Rule, c.Key); before < 0 || after > before {
				t.Errorf("%d checks: %d units in use before refused shadows, %d after", len(beside), before, after)
			}
		}
	})
}
