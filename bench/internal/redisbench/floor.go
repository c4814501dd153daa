package redisbench

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/bench/internal/workload"
)

//go:embed scripts/token_bucket.lua
var tokenBucketScript string

// TokenBucketFloor is a bare EVALSHA of the smallest script that decides rightly,
// through the client that Headgate uses.
func TokenBucketFloor() Contender {
	return Contender{
		Name: "bare EVALSHA (rueidis)", Role: Floor, Open: openFloor,
		Note: "the smallest right token bucket: one key, one packed string, whole numbers, the server's clock; no validation, one limit only",
	}
}

// dial connects as every contender over rueidis does, with the options that
// Headgate's store sets when it connects by itself: one connection, on which
// calls that are under way at the same time are pipelined, and no retries.
func dial(addr string) (rueidis.Client, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{addr},
		DisableRetry:      true,
		DisableCache:      true,
		ForceSingleClient: true,
		PipelineMultiplex: -1,
	})
	if err != nil {
		return nil, fmt.Errorf("redisbench: connecting to %s: %w", addr, err)
	}
	return client, nil
}

func openFloor(_ context.Context, addr string, q workload.Limits) (*Limiter, error) {
	client, err := dial(addr)
	if err != nil {
		return nil, err
	}
	script := rueidis.NewLuaScript(tokenBucketScript)
	var args [len(q)][]string
	for c := range q {
		count := strconv.FormatInt(q[c].Count, 10)
		args[c] = []string{count, strconv.FormatInt(q[c].Period.Microseconds(), 10), count, "1"}
	}
	return &Limiter{
		Take: func(ctx context.Context, c workload.Class, key string) (bool, error) {
			answer, err := script.Exec(ctx, client, []string{"floor:" + key}, args[c]).AsIntSlice()
			if err != nil {
				return false, err
			}
			if len(answer) != 3 {
				return false, fmt.Errorf("the script answered %v, must be three numbers", answer)
			}
			return answer[0] == 1, nil
		},
		Close: closer(client),
	}, nil
}

// closer adapts a client's Close, which cannot fail.
func closer(client rueidis.Client) func() error {
	return func() error {
		client.Close()
		return nil
	}
}
