package memorybench

import (
	"context"
	"fmt"
	"sync"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/bench/internal/workload"
)

// Peers returns the limiters that Headgate is measured against, set up as their
// own documents show.
func Peers() []Contender {
	return []Contender{
		{
			Name: "throttled v2", Open: openThrottled,
			Note: "GCRA by compare-and-swap, the map under one read-write lock; gives up with an error after 10 lost races (raised here, or the hot key fails on two cores); expires nothing unless given a number of keys, whose oldest it then forgets",
		},
		{
			Name: "sethvargo/go-limiter", Open: openGoLimiter,
			Note: "fixed window from the first request, one read-write lock and one lock a key; sweeps every 6 hours",
		},
		{
			Name: "ulule/limiter v3", Open: openUlule,
			Note: "fixed window from the first request, in a sync.Map; counts denied requests too; sweeps every 30 seconds",
		},
		{
			Name: "x/time/rate in a sync.Map", Open: openTimeRate,
			Note: "token bucket in floating point, one lock a key; answers yes or no only; expires nothing",
		},
	}
}

// Harness is the contender that decides nothing.
func Harness() Contender {
	return Contender{
		Name: "(harness alone)", Role: Floor,
		Note: "what the loop, the function call and reading the key cost",
		Open: func(workload.Limits) (*Limiter, error) {
			return &Limiter{Take: func(c workload.Class, key string) (bool, error) {
				return c == workload.Wide && key != "", nil
			}}, nil
		},
	}
}

func openThrottled(q workload.Limits) (*Limiter, error) {
	// Zero keys means no bound. With a bound the store forgets counters that are
	// still in use, and each look-up takes the one lock alone.
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, fmt.Errorf("throttled: %w", err)
	}
	var limiters [len(q)]*throttled.GCRARateLimiterCtx
	for c := range q {
		limiters[c], err = throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate:  throttled.PerDuration(int(q[c].Count), q[c].Period),
			MaxBurst: int(q[c].Count) - 1, // In addition to the one that the rate gives.
		})
		if err != nil {
			return nil, fmt.Errorf("throttled: %w", err)
		}
		// With the ten attempts that are the default, two cores on one key make
		// it give up with an error after some thousand decisions.
		limiters[c].SetMaxCASAttemptsLimit(100_000)
	}
	ctx := context.Background()
	return &Limiter{Take: func(c workload.Class, key string) (bool, error) {
		limited, _, err := limiters[c].RateLimitCtx(ctx, key, 1)
		return !limited, err
	}}, nil
}

func openGoLimiter(q workload.Limits) (*Limiter, error) {
	wide := q[workload.Wide]
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(wide.Count), Interval: wide.Period})
	if err != nil {
		return nil, fmt.Errorf("go-limiter: %w", err)
	}
	ctx := context.Background()
	return &Limiter{
		Add: func(c workload.Class, key string) error {
			if c == workload.Wide {
				return nil // The store's own limit.
			}
			return store.Set(ctx, key, uint64(q[c].Count), q[c].Period)
		},
		Take: func(_ workload.Class, key string) (bool, error) {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok, err
		},
		Close: func() error { return store.Close(ctx) },
	}, nil
}

func openUlule(q workload.Limits) (*Limiter, error) {
	store := ululememory.NewStore()
	var limiters [len(q)]*ulule.Limiter
	for c := range q {
		limiters[c] = ulule.New(store, ulule.Rate{Limit: q[c].Count, Period: q[c].Period})
	}
	ctx := context.Background()
	return &Limiter{Take: func(c workload.Class, key string) (bool, error) {
		state, err := limiters[c].Get(ctx, key)
		return !state.Reached, err
	}}, nil
}

func openTimeRate(q workload.Limits) (*Limiter, error) {
	var limiters sync.Map // of *rate.Limiter by key
	return &Limiter{Take: func(c workload.Class, key string) (bool, error) {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(rate.Every(q[c].Interval()), int(q[c].Count)))
		}
		return l.(*rate.Limiter).Allow(), nil
	}}, nil
}
