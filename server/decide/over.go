package decide

import (
	"context"
	"errors"
	"fmt"

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
}

var _ Decider = (*Over)(nil)

// Policy implements [Decider].
func (o *Over) Policy() Policy { return o.Rules() }

// Take implements [Decider].
func (o *Over) Take(ctx context.Context, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	if len(ask.Checks) == 0 {
		return dst, nil
	}
	return o.Store.Take(ctx, ask.Op, ask.Checks, dst)
}

// errNoLedger is the error of a store that does not remember requests.
var errNoLedger = fmt.Errorf("%w: the store does not remember requests by an id", errors.ErrUnsupported)

// TakeOnce implements [Decider].
func (o *Over) TakeOnce(ctx context.Context, terms headgate.Terms, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	if len(ask.Checks) == 0 {
		return dst, nil
	}
	ledger, ok := o.Store.(headgate.Ledger)
	if !ok {
		return dst, errNoLedger
	}
	return ledger.TakeOnce(ctx, terms, ask.Checks, dst)
}

// Reserve implements [Decider].
func (o *Over) Reserve(ctx context.Context, terms headgate.Terms, ask *Ask, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	if len(ask.Checks) == 0 {
		return headgate.Reservation{}, dst, nil
	}
	ledger, ok := o.Store.(headgate.Ledger)
	if !ok {
		return headgate.Reservation{}, dst, errNoLedger
	}
	return ledger.Reserve(ctx, terms, ask.Checks, dst)
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
