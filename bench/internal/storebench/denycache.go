package storebench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/redis"
)

// The ways to ask, and what is asked for: one key whose limit is used up, or keys that nobody has
// seen.
const (
	single, shared, cached = 0, 1, 2
	flood, unseen          = 0, 1
)

// DenyCache measures what the deny cache saves under a flood of one denied key, and what it costs
// keys that nobody has denied. A run for the record takes about half a minute.
func DenyCache(ctx context.Context, w *measure.Work) (*report.Text, error) {
	plan := measure.Choose(w,
		measure.Plan{Rounds: 60, Slice: 100 * time.Millisecond, Callers: 64, Keys: 10_000},
		measure.Plan{Rounds: 2, Slice: 200 * time.Millisecond, Callers: 64, Keys: 1000})
	rows, err := denials(ctx, w, plan)
	if err != nil {
		return nil, err
	}
	return denialsText(w.Redis.Version, plan, rows), nil
}

func denialsText(version string, plan measure.Plan, rows measure.Rows) *report.Text {
	t := new(report.Text)
	t.Say("%s. %d callers, closed loop; median of %d rounds of %v. \"One denied key\" is a flood of requests for a key whose limit is used up, \"cold keys\" are keys that nobody has seen, while the cache remembers %s others.\n\n",
		version, plan.Callers, plan.Rounds, plan.Slice, report.Number(float64(plan.Keys)))
	t.Say("%s", layered(rows, "one denied key", "cold keys"))
	cache := &rows[cached]
	t.AtLeast(20, cache.Over(&rows[single], flood, measure.Sample.PerSecond), "one denied key, deny cache: throughput ÷ one call each")
	t.AtMost(0.01, cache.Median(flood, measure.Sample.CallsEach), "one denied key, deny cache: Redis calls a decision")
	t.AtMost(1.05, cache.Over(&rows[shared], unseen, measure.Sample.ClientCPU), "cold keys, deny cache: client CPU ÷ without")
	t.AtMost(1.05, 1/cache.Over(&rows[shared], unseen, measure.Sample.PerSecond), "cold keys, deny cache: time of a decision ÷ without")
	return t
}

// denials measures all ways. The cache remembers as many keys as the plan has.
func denials(ctx context.Context, w *measure.Work, plan measure.Plan) (_ measure.Rows, err error) {
	rows := measure.Rows{{Name: "one call each"}, {Name: "calls combined"}, {Name: "calls combined, with a deny cache"}}
	alone, err := redis.Open(ctx, w.Redis.URL(), redis.Timeout(unhurried), redis.Combining(0))
	if err != nil {
		return nil, err
	}
	defer alone.Close()
	store, err := redis.Open(ctx, w.Redis.URL(), redis.Timeout(unhurried))
	if err != nil {
		return nil, err
	}
	defer store.Close()
	layer, err := denycache.New(store, denycache.Options{Bus: store, Trust: time.Hour})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, layer.Close(ctx)) }()
	hints := headgate.Hints{DenyCache: headgate.DenyCacheOn}
	tight := headgate.Check{Rule: headgate.MustRule("tight", headgate.Per(1, 24*time.Hour)), Hints: hints}
	if err := remember(ctx, layer, tight, plan.Keys); err != nil {
		return nil, err
	}
	var next atomic.Int64
	loads := []load{flood: {
		plan.Callers, plan.Slice, tight, func() string { return "flood" },
	}, unseen: {
		plan.Callers, plan.Slice,
		headgate.Check{Rule: headgate.MustRule("loose", headgate.PerSecond(1000)), Hints: hints},
		func() string { return workload.Key(int(next.Add(1))) },
	}}
	stores := []headgate.Store{alone, store, layer.Store()}
	return rows, plan.Turns(ctx, w, rows, []int{flood, unseen}, func(_, condition, i int) (measure.Sample, error) {
		return measure.Spending(ctx, w.Redis, func() (measure.Sample, error) {
			return loads[condition].insist(ctx, stores[i], condition == unseen)
		})
	})
}

// remember has the cache remember so many keys, "flood" among them. It waits until
// the bus is connected, since the cache then forgets what it has remembered before.
func remember(ctx context.Context, layer *denycache.Layer, check headgate.Check, keys int) error {
	for start := time.Now(); !layer.Stats().Listening; time.Sleep(time.Millisecond) {
		if time.Since(start) > unhurried {
			return fmt.Errorf("no connection to the bus: %w", layer.Stats().Error)
		}
	}
	for i := range keys {
		check.Key = fmt.Sprintf("denied %d", i)
		if i == 0 {
			check.Key = "flood"
		}
		for _, admitted := range []bool{true, false} {
			got, err := layer.Store().Take(ctx, headgate.OpTake, []headgate.Check{check}, nil)
			if err != nil {
				return err
			}
			if got[0].Allowed != admitted {
				return fmt.Errorf("key %q: allowed is %t, must be %t", check.Key, got[0].Allowed, admitted)
			}
		}
	}
	if n := layer.Stats().Keys; n != int64(keys) {
		return fmt.Errorf("%d keys are remembered, not %d", n, keys)
	}
	return nil
}
