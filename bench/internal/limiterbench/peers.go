package limiterbench

import (
	"context"
	"fmt"
	"sync"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/bench/internal/workload"
)

// memoryPeers are the limiters in memory that Headgate is compared with, set up as their own
// documents show.
var memoryPeers = []contender{
	{
		name: "throttled v2", open: openThrottledMemory,
		note: "GCRA by compare-and-swap, the map under one read-write lock; gives up with an error after 10 lost races (raised here, or the hot key fails on two cores); expires nothing unless given a number of keys, whose oldest it then forgets",
	},
	{
		name: "sethvargo/go-limiter", open: openGoLimiter,
		note: "fixed window from the first request, one read-write lock and one lock a key; sweeps every 6 hours",
	},
	{
		name: "ulule/limiter v3", open: openUluleMemory,
		note: "fixed window from the first request, in a sync.Map; counts denied requests too; sweeps every 30 seconds",
	},
	{
		name: "x/time/rate in a sync.Map", open: openTimeRate,
		note: "token bucket in floating point, one lock a key; answers yes or no only; expires nothing",
	},
	{
		name: "failsafe-go in a sync.Map", open: openFailsafe,
		note: "its bursty limiter: periods counted from the limiter's first use, one lock a key; answers yes or no here; expires nothing",
	},
}

// redisPeers are those in Redis, each over a go-redis client with its default pool.
var redisPeers = []contender{
	{
		name: "redis_rate v10", open: openRedisRate,
		note: "GCRA in one EVALSHA by the server's clock, in floating point as text; a connection for each call under way",
	},
	{
		name: "throttled v2 (goredisstore)", open: openThrottledRedis,
		note: "GCRA in the client: a pipelined TIME and GET, then compare-and-swap by EVAL with the script's text; two round trips for an admission, one for a denial, more when it loses a race, and an error after ten",
	},
	{
		name: "ulule/limiter v3", open: openUluleRedis,
		note: "fixed window from the first request in one EVALSHA (INCRBY, then PEXPIRE or PTTL); counts denied requests too; reset by the client's clock",
	},
}

func openThrottledMemory(ctx context.Context, _ string, q workload.Limits) (*limiter, error) {
	// Zero keys means no bound. With a bound the store forgets counters that are
	// still in use, and each look-up takes the one lock alone.
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, fmt.Errorf("throttled: %w", err)
	}
	// With the ten attempts that are the default, two cores on one key make
	// it give up with an error after some thousand decisions.
	take, err := throttledTake(ctx, store, q, 100_000)
	return &limiter{take: take}, err
}

func openThrottledRedis(ctx context.Context, addr string, q workload.Limits) (*limiter, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	store, err := goredisstore.NewCtx(client, "throttled:")
	if err != nil {
		return nil, fmt.Errorf("throttled: %w", err)
	}
	take, err := throttledTake(ctx, store, q, 10)
	return &limiter{take: take, end: client.Close}, err
}

// throttledTake asks one limiter for each class, which make so many attempts.
func throttledTake(ctx context.Context, store throttled.GCRAStoreCtx, q workload.Limits, attempts int) (take, error) {
	var limiters [len(q)]*throttled.GCRARateLimiterCtx
	for c := range q {
		var err error
		limiters[c], err = throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate:  throttled.PerDuration(int(q[c].Count), q[c].Period),
			MaxBurst: int(q[c].Count) - 1, // in addition to the one that the rate gives
		})
		if err != nil {
			return nil, fmt.Errorf("throttled: %w", err)
		}
		limiters[c].SetMaxCASAttemptsLimit(attempts)
	}
	return func(c workload.Class, key string) (bool, error) {
		limited, _, err := limiters[c].RateLimitCtx(ctx, key, 1)
		return !limited, err
	}, nil
}

func openUluleMemory(ctx context.Context, _ string, q workload.Limits) (*limiter, error) {
	return &limiter{take: ululeTake(ctx, ululememory.NewStore(), q)}, nil
}

func openUluleRedis(ctx context.Context, addr string, q workload.Limits) (*limiter, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	store, err := ululeredis.NewStore(client)
	if err != nil {
		return nil, fmt.Errorf("ulule: %w", err)
	}
	return &limiter{take: ululeTake(ctx, store, q), end: client.Close}, nil
}

func ululeTake(ctx context.Context, store ulule.Store, q workload.Limits) take {
	var limiters [len(q)]*ulule.Limiter
	for c := range q {
		limiters[c] = ulule.New(store, ulule.Rate{Limit: q[c].Count, Period: q[c].Period})
	}
	return func(c workload.Class, key string) (bool, error) {
		state, err := limiters[c].Get(ctx, key)
		return !state.Reached, err
	}
}

func openGoLimiter(ctx context.Context, _ string, q workload.Limits) (*limiter, error) {
	wide := q[workload.Wide]
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(wide.Count), Interval: wide.Period})
	if err != nil {
		return nil, fmt.Errorf("go-limiter: %w", err)
	}
	return &limiter{
		add: func(c workload.Class, key string) error {
			if c == workload.Wide {
				return nil // the store's own limit
			}
			return store.Set(ctx, key, uint64(q[c].Count), q[c].Period)
		},
		take: func(_ workload.Class, key string) (bool, error) {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok, err
		},
		end: func() error { return store.Close(ctx) },
	}, nil
}

func openTimeRate(_ context.Context, _ string, q workload.Limits) (*limiter, error) {
	var limiters sync.Map // of *rate.Limiter by key
	return &limiter{take: func(c workload.Class, key string) (bool, error) {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(rate.Every(q[c].Interval()), int(q[c].Count)))
		}
		return l.(*rate.Limiter).Allow(), nil
	}}, nil
}

func openFailsafe(_ context.Context, _ string, q workload.Limits) (*limiter, error) {
	var limiters sync.Map // of ratelimiter.RateLimiter by key
	return &limiter{take: func(c workload.Class, key string) (bool, error) {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, ratelimiter.NewBursty[any](uint(q[c].Count), q[c].Period))
		}
		return l.(ratelimiter.RateLimiter[any]).TryAcquirePermit(), nil
	}}, nil
}

func openRedisRate(ctx context.Context, addr string, q workload.Limits) (*limiter, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	limits, l := [len(q)]redis_rate.Limit{}, redis_rate.NewLimiter(client)
	for c := range q {
		limits[c] = redis_rate.Limit{Rate: int(q[c].Count), Burst: int(q[c].Count), Period: q[c].Period}
	}
	return &limiter{end: client.Close, take: func(c workload.Class, key string) (bool, error) {
		r, err := l.Allow(ctx, key, limits[c])
		return err == nil && r.Allowed > 0, err
	}}, nil
}
