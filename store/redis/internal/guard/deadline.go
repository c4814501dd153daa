package guard

import (
	"context"
	"sync/atomic"
	"time"
)

// Deadlines gives each call a context that ends at the call's deadline. A timer for each call would
// cost more than all other work in this process for the call. So calls that begin within a
// sixteenth of the timeout share a context, and a call may last up to a sixteenth of the timeout
// longer. It is safe for concurrent use.
type Deadlines struct {
	Timeout time.Duration // the time that a call may take
	current atomic.Pointer[sharedDeadline]
}

type sharedDeadline struct {
	ctx    context.Context
	cancel context.CancelFunc
	until  time.Time // calls that begin later need another
}

// none is the release function of shared contexts, which are not released.
func none() {}

// Limit returns a context that ends at the call's deadline, or the parent if its deadline is
// earlier. The function that it returns releases the context, and must be called. The error is the
// parent's, if the parent has ended.
//
// If the parent's deadline is not the earlier one, the context does not depend on the parent: if
// the parent is cancelled during the call, the call goes on, because it may already have counted
// and will end soon.
func (d *Deadlines) Limit(parent context.Context) (context.Context, context.CancelFunc, error) {
	if err := parent.Err(); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	if end, ok := parent.Deadline(); ok && end.Sub(now) < d.Timeout {
		return parent, none, nil
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

// Close cancels the current shared context, and so ends the calls that have it. Other calls end at
// their deadlines.
func (d *Deadlines) Close() {
	if old := d.current.Swap(nil); old != nil {
		old.cancel()
	}
}
