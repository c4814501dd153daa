package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/server/decide"
)

// admit lets the plan's policy decide about the request, and holds the request for the delay of a
// leaky bucket. It returns false if it has answered the request.
func (x *exchange) admit() bool {
	c := &x.charge
	found, err := x.plan.policy.Decide(x.facts, 1, c.Checks[:0])
	if err != nil {
		return x.cannotCount(err)
	}
	if err := x.enter(found.Bounds); err != nil {
		return x.turnAway(err)
	}
	// The queue of an upstream comes after the gates of the rules, so that a request that waits in
	// it has everything else that it needs.
	if !x.pass() {
		x.leave()
		return false
	}
	ctx := x.r.Context() // the context of the permits
	c.Checks, c.Ledger = found.Checks, nil
	if x.g.settling.estimate(c.Checks) {
		c.Ledger, c.Terms.For = c.Store.(*counters), x.plan.policy.Term(c.Checks)
	}
	x.ask = decide.Ask{
		Op: headgate.OpTake, Descriptor: x.facts, Cost: 1,
		Policy: x.plan.policy, Checks: c.Checks, Denied: found.Denied, Allowed: found.Allowed,
	}
	outcome, err := c.Decide(ctx)
	if c.Lost != nil {
		x.g.options.Logger.LogAttrs(ctx, slog.LevelError, "what a request took could not be given back", slog.Any("error", c.Lost))
	}
	if outcome == admission.Passed && found.Denied != nil {
		outcome = admission.Listed
	}
	if outcome != admission.Passed && outcome != admission.Open {
		x.leave()
	}
	x.decided = outcome == admission.Passed || outcome == admission.Denied
	switch outcome {
	case admission.Passed:
		if slices.ContainsFunc(c.Verdict.Decisions, func(d headgate.Decision) bool { return d.Source == headgate.SourceOpen }) {
			x.outcome = open
		}
		return true
	case admission.Open:
		x.outcome = open
		return true
	case admission.Ended:
		if x.load.Gate != nil {
			return x.notLetIn(err) // the gate was asked again after a delay
		}
		return x.gone(err)
	case admission.Broken:
		// The rules are valid, so the request is the reason that they cannot be applied.
		return x.cannotCount(err)
	}
	x.turnDown(outcome)
	return false
}

// turnDown answers a request that a list or a limit denies, or for which there is no decision.
func (x *exchange) turnDown(why admission.Outcome) {
	var p httplimit.Problem
	switch why {
	case admission.Listed:
		x.outcome, p = listed, httplimit.Problem(notice.Forbidden())
	case admission.Denied:
		x.outcome, p = denied, httplimit.QuotaExceeded(&x.charge.Verdict)
	default:
		x.outcome, p = unavailable, httplimit.Problem(notice.ReducedCapacity(admission.UnavailableFor))
	}
	x.answer(&p)
}

// cannotCount answers a request to which the rules cannot be applied. It returns false.
func (x *exchange) cannotCount(err error) bool {
	x.outcome = refused
	detail := ""
	if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
		detail = wrong.Problems.String()
	}
	p := httplimit.Problem(notice.Uncountable(detail))
	x.answer(&p)
	return false
}

// gone answers a request whose context has ended. It returns false.
func (x *exchange) gone(err error) bool {
	x.outcome = clientGone
	if errors.Is(err, context.DeadlineExceeded) {
		x.outcome = unavailable
		p := httplimit.Problem(notice.ReducedCapacity(admission.UnavailableFor))
		p.Detail = "The request's deadline came before the rate limiter's decision."
		x.answer(&p)
		return false
	}
	x.w.WriteHeader(httplimit.StatusClientGone)
	return false
}

// turnAway answers a request that did not get a permit. It returns false.
func (x *exchange) turnAway(err error) bool {
	refusal, refused := errors.AsType[*inprogress.Refusal](err)
	switch {
	case refused:
		x.outcome = crowded
		p := httplimit.Problem(notice.InProgress(refusal))
		x.answer(&p)
		return false
	case x.r.Context().Err() != nil:
		return x.gone(x.r.Context().Err())
	case errors.Is(err, headgate.ErrUnavailable):
		x.turnDown(admission.Unavailable)
		return false
	}
	return x.cannotCount(err)
}

// counters gives one exchange access to the counters, through the decider, which learns for what
// each call is. It is a [headgate.Store] and an [admission.Ledger].
type counters exchange

// Take implements [headgate.Store].
func (c *counters) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if op == headgate.OpTake {
		c.ask.Reserve, c.ask.Terms = false, headgate.Terms{}
		return c.g.decider.Take(ctx, &c.ask, dst)
	}
	ask := decide.Ask{Op: op, Descriptor: c.facts, Cost: 1, Policy: c.plan.policy, Checks: checks}
	return c.g.decider.Take(ctx, &ask, dst)
}

// Reserve implements [admission.Ledger].
func (c *counters) Reserve(ctx context.Context, terms headgate.Terms, _ []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	c.ask.Reserve, c.ask.Terms = true, terms
	dst, err := c.g.decider.Take(ctx, &c.ask, dst)
	return c.ask.Reservation, dst, err
}

// Settle implements [admission.Ledger].
func (c *counters) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	return c.g.decider.Settle(ctx, r, units, dst)
}
