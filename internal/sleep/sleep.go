// Package sleep has the pauses between the tries of goroutines that a context ends.
package sleep

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d. It returns false if the context ended first.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Jittered is a random time between half of d and d, so that processes that began at the same time
// do not act at the same time.
func Jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
