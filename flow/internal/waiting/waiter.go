package waiting

import (
	"context"
	"time"

	"github.com/headgate/headgate/flow"
)

// Waiter is one caller that waits. Gates use it again once its caller has returned.
type Waiter struct {
	// Request is what the caller asks for, and Rank that of its class.
	Request flow.Request
	Rank    int
	// Context is the caller's, for gates that ask another one on its behalf.
	Context context.Context
	// Since is when it began to wait, on the gate's clock.
	Since time.Duration
	// Passed is how many units have overtaken it because they fit and it did not.
	Passed int64
	// Permit and Err are the answer, once it was settled.
	Permit flow.Permit
	Err    error

	settled chan struct{} // holds one, so that settling never blocks
	timer   *time.Timer

	flow         uint64
	in           *queue // nil while it is in no line
	seq          uint64
	prev, next   *Waiter // in its queue
	older, newer *Waiter // in its class
}

// NewWaiter returns a waiter for use with Reset.
func NewWaiter() *Waiter { return &Waiter{settled: make(chan struct{}, 1)} }

// Reset prepares the waiter for a request.
func (w *Waiter) Reset(r flow.Request, now time.Duration) {
	w.Request, w.Rank, w.Since, w.Passed = r, r.Class.Rank(), now, 0
	w.Permit, w.Err, w.Context = flow.Permit{}, nil, nil
}

// Settle answers the waiter, which must be out of the line. The gate's lock is held.
func (w *Waiter) Settle(p flow.Permit, err error) {
	w.Permit, w.Err = p, err
	w.settled <- struct{}{}
}

// InLine reports whether the waiter still waits. The gate's lock is held.
func (w *Waiter) InLine() bool { return w.in != nil }

// End is why waiting ended.
type End uint8

// The reasons for which [Waiter.Wait] ends.
const (
	Settled End = iota
	TimedOut
	Canceled
)

// Wait waits until the waiter is settled, the context ends, or the time is over; a
// time of zero never is. The gate's lock is not held. Unless it returns Settled, the
// gate has to look whether the waiter is still in line, and call Consume if not.
func (w *Waiter) Wait(ctx context.Context, within time.Duration) End {
	var over <-chan time.Time
	if within > 0 {
		if w.timer == nil {
			w.timer = time.NewTimer(within)
		} else {
			w.timer.Reset(within)
		}
		defer w.timer.Stop()
		over = w.timer.C
	}
	select {
	case <-w.settled:
		return Settled
	case <-ctx.Done():
		return Canceled
	case <-over:
		return TimedOut
	}
}

// Consume takes the notice of an answer that Wait did not take.
func (w *Waiter) Consume() { <-w.settled }
