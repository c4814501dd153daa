package limiterbench

import (
	"context"
	_ "embed" // for the script
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

var inMemory = contender{
	name: "Headgate", role: measure.Ours,
	note: "token bucket in exact integers; all limits of all checks or none; answers with remaining, retry after and reset after; bounded memory",
	open: func(ctx context.Context, _ string, q workload.Limits) (*limiter, error) {
		take, err := byClass(ctx, memory.New(), q)
		return &limiter{take: take}, err
	},
}

// inMemoryWindows are the other algorithms of constant size. Their windows last a year whatever the class
// of keys, so that none ends in a round.
var inMemoryWindows = []contender{
	{
		name: "Headgate, fixed window", role: measure.Ours,
		open: openInMemory(func(q workload.Limit) []headgate.Limit {
			return []headgate.Limit{{Algorithm: headgate.FixedWindow, Count: q.Count, Period: year}}
		}),
	},
	{
		name: "Headgate, sliding counter", role: measure.Ours,
		open: openInMemory(func(q workload.Limit) []headgate.Limit {
			return []headgate.Limit{{Algorithm: headgate.SlidingCounter, Count: q.Count, Period: year}}
		}),
	},
}

// inMemorySeveral are requests for several limits, which no other contender has.
var inMemorySeveral = []contender{
	{
		name: "Headgate, three token buckets", role: measure.Ours,
		open: openInMemory(func(q workload.Limit) []headgate.Limit {
			return []headgate.Limit{headgate.Per(q.Count, q.Period), headgate.Per(q.Count, q.Period/2), headgate.Per(q.Count, q.Period/4)}
		}),
	},
	{
		name: "Headgate, two rules", role: measure.Ours,
		open: func(ctx context.Context, _ string, q workload.Limits) (*limiter, error) {
			rules, err := q.Rules()
			if err != nil {
				return nil, err
			}
			second, err := headgate.NewRule("second", headgate.Per(q[workload.Wide].Count, q[workload.Wide].Period))
			if err != nil {
				return nil, err
			}
			return &limiter{take: byRules(ctx, memory.New(), rules[:], second)}, nil
		},
	},
}

// openInMemory asks a store in memory for a rule for each class of keys.
func openInMemory(limits func(q workload.Limit) []headgate.Limit) opening {
	return func(ctx context.Context, _ string, q workload.Limits) (*limiter, error) {
		var rules [len(q)]*headgate.Rule
		for c := range q {
			var err error
			if rules[c], err = headgate.NewRule(workload.Class(c).String(), limits(q[c])...); err != nil {
				return nil, err
			}
		}
		return &limiter{take: byRules(ctx, memory.New(), rules[:])}, nil
	}
}

// byClass asks for one token bucket for each class of keys.
func byClass(ctx context.Context, store headgate.Store, q workload.Limits) (take, error) {
	rules, err := q.Rules()
	return byRules(ctx, store, rules[:]), err
}

// byRules asks for one rule for each class of keys, and for further ones that are the same for all.
func byRules(ctx context.Context, store headgate.Store, rules []*headgate.Rule, further ...*headgate.Rule) take {
	var limiters [len(workload.Limits{})]*headgate.Limiter
	for c, rule := range rules {
		if rule != nil {
			limiters[c] = headgate.New(store, append([]*headgate.Rule{rule}, further...)...)
		}
	}
	return func(c workload.Class, key string) (bool, error) {
		d, err := limiters[c].Allow(ctx, key)
		return d.Allowed, err
	}
}

// byRule asks for one rule.
func byRule(ctx context.Context, store headgate.Store, name string, limits ...headgate.Limit) (take, error) {
	rule, err := headgate.NewRule(name, limits...)
	if err != nil {
		return nil, err
	}
	l := headgate.New(store, rule)
	return func(_ workload.Class, key string) (bool, error) {
		d, err := l.Allow(ctx, key)
		return d.Allowed, err
	}, nil
}

// patience is the deadline of a call. The store's own default is meant for
// services and would cut off the slowest calls of a saturated machine, which
// belong into the figures; go-redis waits as long by default.
const patience = 3 * time.Second

// connect opens the store as a user does, but for the deadline. Decisions share calls from so many
// in flight on; 0 is a call for each.
func connect(ctx context.Context, addr string, combineFrom int) (*redis.Store, func() error, error) {
	prefix := redis.DefaultPrefix
	if combineFrom > 0 {
		prefix = "hs:" // both can be measured side by side
	}
	store, err := redis.Open(ctx, "redis://"+addr, redis.Timeout(patience), redis.Prefix(prefix), redis.Combining(combineFrom))
	if err != nil {
		return nil, nil, err
	}
	return store, func() error { store.Close(); return nil }, nil
}

// inRedis is a token bucket for each class of keys.
func inRedis(name, note string, combineFrom int) contender {
	return contender{
		name: name, role: measure.Ours, note: note,
		open: func(ctx context.Context, addr string, q workload.Limits) (*limiter, error) {
			store, end, err := connect(ctx, addr, combineFrom)
			if err != nil {
				return nil, err
			}
			take, err := byClass(ctx, store, q)
			return &limiter{take: take, end: end}, err
		},
	}
}

// several is one rule with n limits of one algorithm, none of which is
// ever reached: 200 units a day, 400 in two days, and so on.
func several(name string, a headgate.Algorithm, n, combineFrom int) contender {
	return contender{
		name: name, role: measure.Ours, note: "one rule, one key, one script call",
		open: func(ctx context.Context, addr string, _ workload.Limits) (*limiter, error) {
			limits := make([]headgate.Limit, n)
			for i := range limits {
				limits[i] = headgate.Limit{Algorithm: a, Count: 200 * int64(i+1), Period: time.Duration(i+1) * day}
			}
			store, end, err := connect(ctx, addr, combineFrom)
			if err != nil {
				return nil, err
			}
			take, err := byRule(ctx, store, fmt.Sprintf("%s-%d", a, n), limits...)
			return &limiter{take: take, end: end}, err
		},
	}
}

// harness decides nothing.
var harness = contender{
	name: "(harness alone)", role: measure.Floor,
	open: func(context.Context, string, workload.Limits) (*limiter, error) {
		return &limiter{take: func(c workload.Class, key string) (bool, error) {
			return c == workload.Wide && key != "", nil
		}}, nil
	},
}

//go:embed scripts/token_bucket.lua
var tokenBucketScript string

// bareEVALSHA calls the smallest script that decides rightly, through the client that Headgate
// uses.
var bareEVALSHA = contender{
	name: "bare EVALSHA (rueidis)", role: measure.Floor, open: openBare,
	note: "the smallest right token bucket: one key, one packed string, whole numbers, the server's clock; no validation, one limit only",
}

// dial connects as contenders over rueidis do that are not a store: one connection, on which
// calls that are under way at the same time are pipelined, and no retries.
func dial(addr string) (_ rueidis.Client, end func() error, err error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{addr},
		DisableRetry:      true,
		DisableCache:      true,
		ForceSingleClient: true,
		PipelineMultiplex: -1,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	return client, func() error { client.Close(); return nil }, nil
}

func openBare(ctx context.Context, addr string, q workload.Limits) (*limiter, error) {
	client, end, err := dial(addr)
	if err != nil {
		return nil, err
	}
	script := rueidis.NewLuaScript(tokenBucketScript)
	var args [len(q)][]string
	for c := range q {
		count := strconv.FormatInt(q[c].Count, 10)
		args[c] = []string{count, strconv.FormatInt(q[c].Period.Microseconds(), 10), count, "1"}
	}
	return &limiter{end: end, take: func(c workload.Class, key string) (bool, error) {
		answer, err := script.Exec(ctx, client, []string{"floor:" + key}, args[c]).AsIntSlice()
		if err != nil {
			return false, err
		}
		if len(answer) != 3 {
			return false, fmt.Errorf("the script answered %v, must be three numbers", answer)
		}
		return answer[0] == 1, nil
	}}, nil
}
