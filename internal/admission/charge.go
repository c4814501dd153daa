package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// settleWithin bounds a call to the store that must outlive the request's context.
const settleWithin = time.Second

// Ledger is what a charge needs of a [headgate.Ledger].
type Ledger interface {
	Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error)
	Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error)
}

// Charge charges one request to its limits, from the first call to the store to the last. It is not
// safe for concurrent use.
type Charge struct {
	// Store decides. If Ledger is not nil, the units are reserved there instead, on the Terms, and
	// can be settled.
	Store  headgate.Store
	Ledger Ledger
	Terms  headgate.Terms
	// Failure says what happens if the store does not answer. MaxDelay is how long a leaky bucket
	// may hold the request. Sleep is how to wait; nil means the function Sleep.
	Failure  Failure
	MaxDelay time.Duration
	Sleep    func(context.Context, time.Duration) error
	// Checks are the checks that bind the request.
	Checks []headgate.Check

	// Verdict is the decision. The memory of its decisions is reused.
	Verdict headgate.Verdict
	// Reservation is what was reserved. It has no ID if nothing was.
	Reservation headgate.Reservation
	// Lost is the error if units that the request had taken could not be given back, or nil.
	Lost error

	tooLate bool // the verdict is a denial because the delay was too long
	settled bool // nothing is left to be given back
}

// Reset forgets the request, so that its strings are not kept alive, and keeps memory for the next
// request.
func (c *Charge) Reset() {
	clear(c.Checks)
	c.Checks, c.Verdict = c.Checks[:0], headgate.Verdict{Decisions: c.Verdict.Decisions[:0]}
	c.Reservation, c.Lost, c.tooLate, c.settled = headgate.Reservation{}, nil, false, false
}

// Decide takes the units, and waits if a leaky bucket delays the request. The outcome is Passed or
// Denied. Without a verdict it is Open, Unavailable, Ended or Broken, with the error.
func (c *Charge) Decide(ctx context.Context) (Outcome, error) {
	c.Lost, c.tooLate = nil, false
	var decisions []headgate.Decision
	var err error
	room := c.Verdict.Decisions[:0]
	if c.Ledger != nil {
		c.Reservation, decisions, err = c.Ledger.Reserve(ctx, c.Terms, c.Checks, room)
	} else {
		decisions, err = c.Store.Take(ctx, headgate.OpTake, c.Checks, room)
	}
	if err != nil {
		c.Verdict = headgate.Verdict{Decisions: room}
		return c.undecided(ctx, err)
	}
	c.Verdict = headgate.NewVerdict(decisions)
	if c.Verdict.Delay > 0 {
		if err := c.Hold(ctx); err != nil {
			return Ended, err
		}
	}
	if !c.Verdict.Allowed {
		return Denied, nil
	}
	return Passed, nil
}

// undecided returns the outcome of a request that the store did not decide because of err.
func (c *Charge) undecided(ctx context.Context, err error) (Outcome, error) {
	switch {
	case errors.Is(err, headgate.ErrInvalid):
		return Broken, err
	case ctx.Err() != nil:
		// A client must not get past the limit by hanging up while the store is asked, even if the
		// gate fails open.
		return Ended, ctx.Err()
	case c.Failure.admits(c.Checks):
		return Open, err
	}
	return Unavailable, err
}

// Hold waits for the delay of an admitted verdict. If the delay exceeds MaxDelay or the context's
// deadline, Hold does not wait and turns the verdict into a denial. If the context ends while Hold
// waits, it returns the context's error. In both cases the units are given back.
func (c *Charge) Hold(ctx context.Context) error {
	most := c.MaxDelay
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, max(0, time.Until(deadline)))
	}
	if c.tooLate = c.Verdict.Delay > most; c.tooLate {
		c.Lost = c.GiveBack(ctx)
		c.deny(most)
		return nil
	}
	err := c.wait(ctx, c.Verdict.Delay)
	if err != nil {
		c.Lost = c.GiveBack(ctx)
	}
	return err
}

func (c *Charge) wait(ctx context.Context, d time.Duration) error {
	if c.Sleep != nil {
		return c.Sleep(ctx, d)
	}
	return Sleep(ctx, d)
}

// deny turns an admitted verdict, whose units were given back, into a denial by the limits that
// delay the request for longer than most.
func (c *Charge) deny(most time.Duration) {
	for i := range c.Verdict.Decisions {
		d := &c.Verdict.Decisions[i]
		d.Remaining = min(d.Remaining+c.Checks[d.Check].Units(), d.Limit.Capacity())
		if d.Delay > most {
			d.Allowed, d.RetryAfter = false, d.Delay-most
		}
		d.Delay = 0
	}
	c.Verdict = headgate.NewVerdict(c.Verdict.Decisions)
}

// Unsettled reports whether the request was admitted, and has not been given back or settled yet.
func (c *Charge) Unsettled() bool { return c.Verdict.Allowed && !c.settled }

// GiveBack gives back everything, because the request is not let in after all.
func (c *Charge) GiveBack(ctx context.Context) error {
	if c.Reservation.ID == "" {
		return c.Refund(ctx, c.Charged())
	}
	c.settled = true
	ctx, cancel := outlive(ctx)
	defer cancel()
	_, err := c.Ledger.Settle(ctx, c.Reservation, make([]int64, len(c.Reservation.Checks)), nil)
	return wrap("cancel what a request has reserved", err)
}

// Charged returns the checks that were charged, each with the time of its charge. They are to be
// given back if the request does not count after all. Checks that were let in without being counted
// are left out, because the store does not know of them.
func (c *Charge) Charged() []headgate.Check {
	none := make([]bool, len(c.Checks)) // checks in shadow that did not fit, and checks let in without the store
	for i := range c.Verdict.Decisions {
		d := &c.Verdict.Decisions[i]
		c.Checks[d.Check].At = d.At
		none[d.Check] = none[d.Check] || !d.Allowed || d.Source == headgate.SourceOpen
	}
	all := make([]headgate.Check, 0, len(c.Checks))
	for i := range c.Checks {
		if !none[i] {
			all = append(all, c.Checks[i])
		}
	}
	return all
}

// Refund gives back the units of the checks. It outlives the context by a second at most.
func (c *Charge) Refund(ctx context.Context, checks []headgate.Check) error {
	c.settled = true
	if len(checks) == 0 {
		return nil // No store takes a request without checks.
	}
	ctx, cancel := outlive(ctx)
	defer cancel()
	_, err := c.Store.Take(ctx, headgate.OpRefund, checks, nil)
	return wrap("give back what a request took", err)
}

// Settle settles the reservation at the given units, one number for each of its checks. If the
// reservation has expired, Settle charges what is missing and returns late. Otherwise a client that
// makes its answer last long enough would not pay for the rest of it. Settle outlives the context
// by a second at most.
func (c *Charge) Settle(ctx context.Context, units []int64) (late bool, err error) {
	c.settled = true
	ctx, cancel := outlive(ctx)
	defer cancel()
	_, err = c.Ledger.Settle(ctx, c.Reservation, units, nil)
	if errors.Is(err, headgate.ErrNoReservation) {
		late, err = true, nil
		if missing := owed(&c.Reservation, units); missing != nil {
			_, err = c.Store.Take(ctx, headgate.OpCharge, missing, nil)
		}
	}
	return late, wrap("settle what a request has cost", err)
}

// owed returns the checks for an OpCharge of what is missing from a reservation that expired before
// it was settled. units has one number for each check of the reservation. A check owes what exceeds
// its estimate or, if its units were given back at the expiry (GiveBack), all its units. What was
// estimated too high stays charged. The result may be empty.
func owed(r *headgate.Reservation, units []int64) []headgate.Check {
	var missing []headgate.Check
	for i, c := range r.Checks {
		estimate := c.Units()
		if c.GiveBack {
			estimate = 0
		}
		if c.Cost, c.At = units[i]-estimate, 0; c.Cost > 0 {
			missing = append(missing, c)
		}
	}
	return missing
}

// Uncharged returns the checks that, by the rules of the set, do not count for a request that ended
// with the status.
func Uncharged(set *policy.Set, checks []headgate.Check, status int) (back []headgate.Check) {
	for i := range checks {
		if !set.Charged(&checks[i], status) {
			back = append(back, checks[i])
		}
	}
	return back
}

// outlive returns a context for work that must be done even if the request's context has ended.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Sleep waits for d or for the context, whichever ends first. The error is the context's.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// EndsWithin reports whether the context's deadline comes within d.
func EndsWithin(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < d
}
