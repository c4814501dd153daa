package grpcbench

import (
	"context"
	"time"
)

// Check returns the load of a call for each check, by rule and key, for others to
// hold theirs against.
func Check(keys int) func(ctx context.Context, addr string, d time.Duration) (int, error) {
	return func(ctx context.Context, addr string, d time.Duration) (int, error) {
		return askCheck.load(ctx, addr, InFlight, keys, d)
	}
}
