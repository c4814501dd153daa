package decide

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// Over is a Decider over a store, without observers. The service is built on it, and tests of doors
// use it.
type Over struct {
	// Rules returns the rules in force.
	Rules func() Policy
	// Store keeps the counters. Requests can be remembered by an id only if it is a
	// [headgate.Ledger].
	Store headgate.Store
	// Hooks are told of each call to the store, as those of [headgate.Observe] are.
	Hooks headgate.Hooks
}

var _ Decider = (*Over)(nil)

// Policy implements [Decider].
func (o *Over) Policy() Policy { return o.Rules() }

// Take implements [Decider].
func (o *Over) Take(ctx context.Context, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	if ask.Took = 0; len(ask.Checks) == 0 {
		return dst, nil
	}
	began := now()
	out, err := o.Store.Take(ctx, ask.Op, ask.Checks, dst)
	ask.Took = now() - began
	o.tell(ctx, ask.Op, ask, appended(dst, out), err)
	return out, err
}

// started is the origin of the times that now returns.
var started = time.Now()

// now returns a time for measuring durations. It reads only the monotonic clock, which takes half
// as long as time.Now.
func now() time.Duration { return time.Since(started) }

// tell calls the hooks for a call to the store.
func (o *Over) tell(ctx context.Context, op headgate.Op, ask *Ask, decisions []headgate.Decision, err error) {
	switch {
	case err == nil && o.Hooks.Decided != nil:
		o.Hooks.Decided(ctx, op, ask.Checks, decisions, ask.Took)
	case err != nil && o.Hooks.Failed != nil:
		o.Hooks.Failed(ctx, op, ask.Checks, err, ask.Took)
	}
}

// errNoLedger is the error of a store that does not remember requests.
var errNoLedger = fmt.Errorf("%w: the store does not remember requests by an id", errors.ErrUnsupported)

// TakeOnce implements [Decider].
func (o *Over) TakeOnce(ctx context.Context, terms headgate.Terms, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	if ask.Took = 0; len(ask.Checks) == 0 {
		return dst, nil
	}
	ledger, ok := o.Store.(headgate.Ledger)
	if !ok {
		return dst, errNoLedger
	}
	began := now()
	out, err := ledger.TakeOnce(ctx, terms, ask.Checks, dst)
	ask.Took = now() - began
	o.tell(ctx, headgate.OpTake, ask, appended(dst, out), err)
	return out, err
}

// Reserve implements [Decider].
func (o *Over) Reserve(ctx context.Context, terms headgate.Terms, ask *Ask, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	if ask.Took = 0; len(ask.Checks) == 0 {
		return headgate.Reservation{}, dst, nil
	}
	ledger, ok := o.Store.(headgate.Ledger)
	if !ok {
		return headgate.Reservation{}, dst, errNoLedger
	}
	began := now()
	r, out, err := ledger.Reserve(ctx, terms, ask.Checks, dst)
	ask.Took = now() - began
	o.tell(ctx, headgate.OpTake, ask, appended(dst, out), err)
	return r, out, err
}

// Recall implements [Decider].
func (o *Over) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	ledger, ok := o.Store.(headgate.Ledger)
	if !ok {
		return headgate.Reservation{}, errNoLedger
	}
	return ledger.Recall(ctx, id)
}

// Settle implements [Decider].
func (o *Over) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	ledger, ok := o.Store.(headgate.Ledger)
	if !ok {
		return dst, errNoLedger
	}
	return ledger.Settle(ctx, r, units, dst)
}

// Told implements [Decider].
func (o *Over) Told(*Parts, error) {}
