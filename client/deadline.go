package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// deadlines gives each call a context that ends by its deadline. A timer for each
// call would cost as much as a good part of the rest of it, so the calls that begin
// within a sixteenth of the timeout share a context, and end by at most that much
// later.
type deadlines struct {
	timeout time.Duration
	current atomic.Pointer[sharedDeadline]
	closed  atomic.Bool
}

type sharedDeadline struct {
	ctx    context.Context
	cancel context.CancelFunc
	until  time.Time // calls that begin later need another
}

var errClosed = errors.New("the client is closed")

// shared returns a context that ends by the deadline of a call which begins now.
func (d *deadlines) shared() (context.Context, error) {
	now := time.Now()
	for {
		if d.closed.Load() {
			return nil, errClosed
		}
		old := d.current.Load()
		if old != nil && now.Before(old.until) {
			return old.ctx, nil
		}
		next := &sharedDeadline{until: now.Add(d.timeout / 16)}
		next.ctx, next.cancel = context.WithTimeout(context.Background(), d.timeout+d.timeout/16)
		if !d.current.CompareAndSwap(old, next) {
			next.cancel()
			continue
		}
		if !d.closed.Load() {
			return next.ctx, nil
		}
		next.cancel()
	}
}

// until is the context of a call that ends by the deadline too.
func until(ctx, deadline context.Context) (context.Context, context.CancelFunc) {
	end, _ := deadline.Deadline()
	return context.WithDeadline(ctx, end)
}

// close ends the calls that wait, and lets no others begin.
func (d *deadlines) close() {
	d.closed.Store(true)
	if old := d.current.Swap(nil); old != nil {
		old.cancel()
	}
}
