package decide

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy/models"
)

// Over is a Decider over a store. Its functions are called in the caller's goroutine and must be
// quick; those that are nil are not called.
type Over struct {
	// Rules returns the rules in force.
	Rules func() Policy
	// Store keeps the counters. Requests can be remembered by an id only if it is a
	// [headgate.Ledger].
	Store headgate.Store
	// Hooks are told of each call to the store, as those of [headgate.Observe] are.
	Hooks headgate.Hooks
	// Decided is called after each Take, whatever the result. Hooks see calls to the store. Decided
	// sees what doors asked for, including requests for which no store was called.
	Decided func(e Event)
	// Settled is called after each Settle, with the reservation and the units of each of its checks.
	Settled func(r headgate.Reservation, units []int64, err error)
	// Spending is told of each call to a language model that was settled, and keeps nothing of it.
	Spending func(context.Context, *models.Spending)
}

var _ Decider = (*Over)(nil)

// Policy implements [Decider].
func (o *Over) Policy() Policy { return o.Rules() }

// Take implements [Decider].
func (o *Over) Take(ctx context.Context, ask *Ask, dst []headgate.Decision) (out []headgate.Decision, err error) {
	if ask.Parts != nil {
		out, err = ask.Parts.take(ctx, o, ask, dst)
	} else {
		out, err = o.call(ctx, ask, dst)
	}
	if o.Decided != nil {
		o.Decided(Event{Ask: ask, Decisions: appended(dst, out), Err: err})
	}
	return out, err
}

// call asks the store once.
func (o *Over) call(ctx context.Context, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	if ask.Took = 0; len(ask.Checks) == 0 {
		return dst, nil
	}
	began := now()
	out, err := o.take(ctx, ask, dst)
	ask.Took = now() - began
	made := appended(dst, out)
	switch {
	case errors.Is(err, errNoLedger): // The store was not asked.
	case err == nil && o.Hooks.Decided != nil:
		o.Hooks.Decided(ctx, ask.Op, ask.Checks, made, ask.Took)
	case err != nil && o.Hooks.Failed != nil:
		o.Hooks.Failed(ctx, ask.Op, ask.Checks, err, ask.Took)
	}
	return out, err
}

func (o *Over) take(ctx context.Context, ask *Ask, dst []headgate.Decision) (_ []headgate.Decision, err error) {
	if !ask.Reserve && ask.Terms.ID == "" {
		return o.Store.Take(ctx, ask.Op, ask.Checks, dst)
	}
	ledger, ok := o.Store.(headgate.Ledger)
	switch {
	case !ok:
		return dst, errNoLedger
	case ask.Reserve:
		ask.Reservation, dst, err = ledger.Reserve(ctx, ask.Terms, ask.Checks, dst)
		return dst, err
	}
	return ledger.TakeOnce(ctx, ask.Terms, ask.Checks, dst)
}

// started is the origin of the times that now returns.
var started = time.Now()

// now returns a time for measuring durations. It reads only the monotonic clock, which takes half
// as long as time.Now.
func now() time.Duration { return time.Since(started) }

// errNoLedger is the error of a store that does not remember requests.
var errNoLedger = fmt.Errorf("%w: the store does not remember requests by an id", errors.ErrUnsupported)

// Recall implements [Decider].
func (o *Over) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	ledger, ok := o.Store.(headgate.Ledger)
	if !ok {
		return headgate.Reservation{}, errNoLedger
	}
	return ledger.Recall(ctx, id)
}

// Settle implements [Decider].
func (o *Over) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) (out []headgate.Decision, err error) {
	out, err = dst, errNoLedger
	if ledger, ok := o.Store.(headgate.Ledger); ok {
		out, err = ledger.Settle(ctx, r, units, dst)
	}
	if o.Settled != nil {
		o.Settled(r, units, err)
	}
	return out, err
}

// Spent implements [Decider].
func (o *Over) Spent(ctx context.Context, s *models.Spending) {
	if o.Spending != nil {
		o.Spending(ctx, s)
	}
}

// Counters gives one request access to its counters, through a Decider, which learns for what each
// call is. It is a [headgate.Store], and has Reserve and Settle of a [headgate.Ledger].
type Counters struct {
	Decider Decider
	Ask     *Ask
}

// Take implements [headgate.Store]. An OpTake is that of the Ask.
func (c Counters) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if op == headgate.OpTake {
		c.Ask.Reserve, c.Ask.Terms = false, headgate.Terms{}
		return c.Decider.Take(ctx, c.Ask, dst)
	}
	ask := Ask{Op: op, Descriptor: c.Ask.Descriptor, Cost: c.Ask.Cost, Policy: c.Ask.Policy, Checks: checks}
	return c.Decider.Take(ctx, &ask, dst)
}

// Reserve reserves what the Ask takes.
func (c Counters) Reserve(ctx context.Context, terms headgate.Terms, _ []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	c.Ask.Reserve, c.Ask.Terms = true, terms
	dst, err := c.Decider.Take(ctx, c.Ask, dst)
	return c.Ask.Reservation, dst, err
}

// Settle settles a reservation; see [Decider].
func (c Counters) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	return c.Decider.Settle(ctx, r, units, dst)
}

// Event says what a Decider did with one Ask. All that it refers to is valid only while
// [Over.Decided] runs.
type Event struct {
	Ask *Ask
	// Decisions are the decisions that were appended, and Err is the error.
	Decisions []headgate.Decision
	Err       error
}

// appended returns the decisions that were appended to dst, with the result out.
func appended(dst, out []headgate.Decision) []headgate.Decision {
	return out[min(len(dst), len(out)):]
}
