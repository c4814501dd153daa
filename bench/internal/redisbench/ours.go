package redisbench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/redis"
)

// Field is everything that is measured, in the order of the tables.
func Field() Entry {
	return Entry{
		Strict: append([]Contender{headgateOneLimit(), TokenBucketFloor()}, Peers()...),
		Several: []Contender{
			headgateLimits("one token bucket", headgate.TokenBucket, 1, 0),
			headgateLimits("five token buckets", headgate.TokenBucket, 5, 0),
			headgateLimits("one sliding window", headgate.SlidingWindow, 1, 0),
			headgateLimits("five sliding windows", headgate.SlidingWindow, 5, 0),
		},
		Windows: []WindowContender{headgateWindows(), CommonZSet()},
	}
}

// patience is the deadline of a call. The store's own default is meant for
// services and would cut off the slowest calls of a saturated machine, which
// belong into the figures; go-redis waits as long by default.
const patience = 3 * time.Second

// connect opens the store over a client like the one of the bare EVALSHA. Decisions
// share calls from so many in flight on; 0 is a call for each.
func connect(addr string, combineFrom int) (*redis.Store, func() error, error) {
	client, err := dial(addr)
	if err != nil {
		return nil, nil, err
	}
	prefix := redis.DefaultPrefix
	if combineFrom > 0 {
		prefix = "hs:" // both can be measured side by side
	}
	store, err := redis.New(client, redis.WithTimeout(patience), redis.WithPrefix(prefix), redis.WithCombining(combineFrom))
	if err != nil {
		return nil, nil, errors.Join(err, closer(client)())
	}
	return store, closer(client), nil
}

func headgateOneLimit() Contender {
	return headgateBucket("Headgate", "token bucket in one EVALSHA through rueidis, whole numbers, the server's clock; all limits of all checks or none; remaining, retry after and reset after to the microsecond", 0)
}

// headgateBucket is one token bucket for each class of keys.
func headgateBucket(name, note string, combineFrom int) Contender {
	return Contender{
		Name: name, Role: Ours, Note: note,
		Open: func(_ context.Context, addr string, q workload.Limits) (*Limiter, error) {
			rules, err := q.Rules()
			if err != nil {
				return nil, err
			}
			store, done, err := connect(addr, combineFrom)
			if err != nil {
				return nil, err
			}
			var byClass [len(q)]func(context.Context, string) (bool, error)
			for c, rule := range rules {
				byClass[c] = take(headgate.New(store, rule))
			}
			return &Limiter{
				Take:  func(ctx context.Context, c workload.Class, key string) (bool, error) { return byClass[c](ctx, key) },
				Close: done,
			}, nil
		},
	}
}

// headgateLimits is one rule with n limits of one algorithm, none of which is
// ever reached: 200 units a day, 400 in two days, and so on.
func headgateLimits(name string, a headgate.Algorithm, n, combineFrom int) Contender {
	return Contender{
		Name: name, Role: Ours, Note: "one rule, one key, one script call",
		Open: func(_ context.Context, addr string, _ workload.Limits) (*Limiter, error) {
			limits := make([]headgate.Limit, n)
			for i := range limits {
				limits[i] = headgate.Limit{Algorithm: a, Count: 200 * int64(i+1), Period: time.Duration(i+1) * day}
			}
			rule, err := headgate.NewRule(fmt.Sprintf("%s-%d", a, n), limits...)
			if err != nil {
				return nil, err
			}
			store, done, err := connect(addr, combineFrom)
			if err != nil {
				return nil, err
			}
			ask := take(headgate.New(store, rule))
			return &Limiter{
				Take:  func(ctx context.Context, _ workload.Class, key string) (bool, error) { return ask(ctx, key) },
				Close: done,
			}, nil
		},
	}
}

func headgateWindows() WindowContender {
	return WindowContender{
		Name: "Headgate", Role: Ours,
		Note: "both windows in one EVALSHA through rueidis, on one packed log; the full state of both limits in the answer",
		Open: func(_ context.Context, addr string, windows []Window) (*WindowLimiter, error) {
			strict, err := windowRule(windows)
			if err != nil {
				return nil, err
			}
			// Under the same name and with the same periods, the counters are the
			// same, whatever the counts.
			filling, err := windowRule(loose(windows))
			if err != nil {
				return nil, err
			}
			store, done, err := connect(addr, 0)
			if err != nil {
				return nil, err
			}
			return &WindowLimiter{
				Take: take(headgate.New(store, strict)), Fill: take(headgate.New(store, filling)),
				Owns:  func(key string) bool { return strings.HasPrefix(key, redis.DefaultPrefix) },
				Close: done,
			}, nil
		},
	}
}

// take adapts a limiter to what is measured.
func take(l *headgate.Limiter) func(context.Context, string) (bool, error) {
	return func(ctx context.Context, key string) (bool, error) {
		d, err := l.Allow(ctx, key)
		return d.Allowed, err
	}
}

func windowRule(windows []Window) (*headgate.Rule, error) {
	limits := make([]headgate.Limit, len(windows))
	for i, w := range windows {
		limits[i] = headgate.Sliding(w.Limit, w.Period)
	}
	return headgate.NewRule("windows", limits...)
}
