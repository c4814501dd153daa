package guard

import (
	"context"
	"sync/atomic"
	"time"
)

// Deadlines gives each call a context that ends at the call's deadline. A timer for each call would
// cost more than everything else that the call does on this side. So calls that begin within a
// sixteenth of the timeout share a context, and a call may last that much longer.
type Deadlines struct {
	Timeout time.Duration // of a call
	current atomic.Pointer[sharedDeadline]
}

type sharedDeadline struct {
	ctx    context.Context
	cancel context.CancelFunc
	until  time.Time // calls that begin later need another
}

// none is the release function of a context that needs no release.
func none() {}

// Limit returns a context that ends at the call's deadline, or at the parent's deadline if that is
// earlier. If the parent is cancelled during the call, the call goes on: it may already have
// counted, and will end soon.
func (d *Deadlines) Limit(parent context.Context) (context.Context, context.CancelFunc, error) {
	if err := parent.Err(); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	if end, ok := parent.Deadline(); ok && end.Sub(now) < d.Timeout {
		ctx, cancel := context.WithTimeout(parent, d.Timeout)
		return ctx, cancel, nil
	}
	for {
		old := d.current.Load()
		if old != nil && now.Before(old.until) {
			return old.ctx, none, nil
		}
		next := &sharedDeadline{until: now.Add(d.Timeout / 16)}
		next.ctx, next.cancel = context.WithTimeout(context.Background(), d.Timeout+d.Timeout/16)
		if d.current.CompareAndSwap(old, next) {
			return next.ctx, none, nil
		}
		next.cancel()
	}
}

// Close ends the calls in flight.
func (d *Deadlines) Close() {
	if old := d.current.Swap(nil); old != nil {
		old.cancel()
	}
}
