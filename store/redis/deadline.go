package redis

import (
	"context"
	"sync/atomic"
	"time"
)

// deadlines gives each call a context that ends by its deadline. A timer for each
// call would cost more than the rest of it on this side, so the calls that begin
// within a sixteenth of the timeout share a context, and end by at most that much
// later.
type deadlines struct {
	timeout time.Duration
	current atomic.Pointer[sharedDeadline]
}

type sharedDeadline struct {
	ctx    context.Context
	cancel context.CancelFunc
	until  time.Time // calls that begin later need another
}

// none is for calls whose context needs no release.
func none() {}

// limit returns a context that ends by the call's deadline, or with the parent if
// that has a deadline of its own that is earlier. A parent that is cancelled while
// the call is on its way is not heeded: the call may have counted, and ends soon.
func (d *deadlines) limit(parent context.Context) (context.Context, context.CancelFunc, error) {
	if err := parent.Err(); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	if end, ok := parent.Deadline(); ok && end.Sub(now) < d.timeout {
		ctx, cancel := context.WithTimeout(parent, d.timeout)
		return ctx, cancel, nil
	}
	for {
		old := d.current.Load()
		if old != nil && now.Before(old.until) {
			return old.ctx, none, nil
		}
		next := &sharedDeadline{until: now.Add(d.timeout / 16)}
		next.ctx, next.cancel = context.WithTimeout(context.Background(), d.timeout+d.timeout/16)
		if d.current.CompareAndSwap(old, next) {
			return next.ctx, none, nil
		}
		next.cancel()
	}
}

// close ends the calls that are on their way.
func (d *deadlines) close() {
	if old := d.current.Swap(nil); old != nil {
		old.cancel()
	}
}
