package waiting

import (
	"context"
	"time"

	"github.com/headgate/headgate/flow"
)

// Waiter is one caller that waits. A gate uses it again after the caller has returned.
type Waiter struct {
	// Request is what the caller asks for, and Rank the rank of its class.
	Request flow.Request
	Rank    int
	// Context is the caller's context, for gates that ask another gate on its behalf.
	Context context.Context
	// Since is when the caller began to wait, by the gate's clock.
	Since time.Duration
	// Passed is how many units have overtaken the waiter because they fit and it did not.
	Passed int64
	// Permit and Err are the answer, after the waiter was settled.
	Permit flow.Permit
	Err    error

	settled chan struct{} // has room for one value, so that Settle never blocks
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

// Wait waits until the waiter is settled, the context ends, or the time within has passed. If
// within is zero, there is no time limit. The caller must not hold the gate's lock. If the result
// is not Settled, the gate must check whether the waiter is still in line, and call Consume if it
// is not.
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

// Consume receives the notice of a settlement that Wait has not received.
func (w *Waiter) Consume() { <-w.settled }
