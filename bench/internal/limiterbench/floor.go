package limiterbench

import (
	"context"
	_ "embed" // for the script
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/workload"
)

// harness decides nothing.
var harness = contender{
	name: "(harness alone)", role: measure.Floor,
	note: "what the loop, the function call and reading the key cost",
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

// dial connects as every contender over rueidis does, with the options that
// Headgate's store sets when it connects by itself: one connection, on which
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
