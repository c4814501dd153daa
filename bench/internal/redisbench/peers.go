package redisbench

import (
	"context"
	"fmt"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/headgate/headgate/bench/internal/workload"
)

// Peers returns the limiters that Headgate is measured against, set up as their
// own documents show, each over a go-redis client with its default pool.
func Peers() []Contender {
	return []Contender{
		{
			Name: "redis_rate v10", Open: openRedisRate,
			Note: "GCRA in one EVALSHA by the server's clock, in floating point as text; a connection for each call under way",
		},
		{
			Name: "throttled v2 (goredisstore)", Open: openThrottled,
			Note: "GCRA in the client: a pipelined TIME and GET, then compare-and-swap by EVAL with the script's text; two round trips for an admission, one for a denial, more when it loses a race, and an error after ten",
		},
		{
			Name: "ulule/limiter v3", Open: openUlule,
			Note: "fixed window from the first request in one EVALSHA (INCRBY, then PEXPIRE or PTTL); counts denied requests too; reset by the client's clock",
		},
	}
}

func openRedisRate(_ context.Context, addr string, q workload.Limits) (*Limiter, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	limiter := redis_rate.NewLimiter(client)
	var limits [len(q)]redis_rate.Limit
	for c := range q {
		limits[c] = redis_rate.Limit{Rate: int(q[c].Count), Burst: int(q[c].Count), Period: q[c].Period}
	}
	return &Limiter{
		Take: func(ctx context.Context, c workload.Class, key string) (bool, error) {
			r, err := limiter.Allow(ctx, key, limits[c])
			return err == nil && r.Allowed > 0, err
		},
		Close: client.Close,
	}, nil
}

func openThrottled(_ context.Context, addr string, q workload.Limits) (*Limiter, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	store, err := goredisstore.NewCtx(client, "throttled:")
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
	}
	return &Limiter{
		Take: func(ctx context.Context, c workload.Class, key string) (bool, error) {
			limited, _, err := limiters[c].RateLimitCtx(ctx, key, 1)
			return !limited, err
		},
		Close: client.Close,
	}, nil
}

func openUlule(_ context.Context, addr string, q workload.Limits) (*Limiter, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	store, err := ululeredis.NewStore(client)
	if err != nil {
		return nil, fmt.Errorf("ulule: %w", err)
	}
	var limiters [len(q)]*ulule.Limiter
	for c := range q {
		limiters[c] = ulule.New(store, ulule.Rate{Limit: q[c].Count, Period: q[c].Period})
	}
	return &Limiter{
		Take: func(ctx context.Context, c workload.Class, key string) (bool, error) {
			state, err := limiters[c].Get(ctx, key)
			return err == nil && !state.Reached, err
		},
		Close: client.Close,
	}, nil
}
