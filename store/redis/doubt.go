package redis

import (
	"context"
	"sync/atomic"
	"time"
)

// doubt knows whether a call may find its connection gone. The client then connects
// within the call, and does not heed the call's context: to a server that hangs that
// takes a second and more. A call in doubt is made by a goroutine of its own, which
// may end later than the call does; there are as many at most as calls may be
// pending. On a cluster see hangs as well.
type doubt struct {
	failed atomic.Bool  // the call that ended last had no answer
	last   atomic.Int64 // about when a call was last answered, in ns

	lasts time.Duration // for how long a failure is remembered, besides
	until atomic.Int64  // to when, about, in ns
}

// doubtLasts is for how long a failure is remembered on a cluster: the nodes that
// answer say nothing of the one that does not, and it has been noticed by then.
const doubtLasts = 3 * time.Second

// idleFor is how long nobody asks until it is doubted that the connection is still
// there. One that is silent is given up after at least as long.
const idleFor = 250 * time.Millisecond

// about is about now, without a look at the clock: calls that begin together share
// a deadline.
func about(ctx context.Context) int64 {
	end, _ := ctx.Deadline()
	return end.UnixNano()
}

// now reports whether there is doubt.
func (d *doubt) now(ctx context.Context) bool {
	at := about(ctx)
	return d.failed.Load() || at-d.last.Load() > int64(idleFor) || at < d.until.Load()
}

// note notes how a call ended. A refusal by the server is an answer, too, but one
// after which nothing is lost by being careful.
func (d *doubt) note(ctx context.Context, err error) {
	if failed := err != nil; d.failed.Load() != failed {
		d.failed.Store(failed)
	}
	at := about(ctx)
	if err == nil && d.last.Load() != at {
		d.last.Store(at)
	}
	if err != nil && d.lasts > 0 {
		d.until.Store(at + int64(d.lasts))
	}
}

// bounded makes a call that ends with its context.
func bounded[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
