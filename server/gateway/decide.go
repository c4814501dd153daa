package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/server/decide"
)

// admit has the request decided, and holds it for a leaky bucket. It reports false
// if it has answered the request.
func (x *exchange) admit() bool {
	ctx := x.r.Context()
	if err := x.take(ctx); err != nil {
		return x.undecided(ctx, err)
	}
	if x.ask.Denied != nil {
		x.outcome = listed
		p := httplimit.Forbidden()
		x.answer(&p)
		return false
	}
	x.verdict, x.decided = headgate.NewVerdict(x.decisions), true
	if x.verdict.Delay > 0 {
		if err := httplimit.Hold(ctx, &x.verdict, x.checks, x.g.options.MaxDelay, x.giveBack); err != nil {
			return x.gone(err)
		}
	}
	if x.verdict.Allowed {
		if slices.ContainsFunc(x.decisions, func(d headgate.Decision) bool { return d.Source == headgate.SourceOpen }) {
			x.outcome = open
		}
		return true
	}
	x.outcome = denied
	p := httplimit.QuotaExceeded(&x.verdict)
	x.answer(&p)
	return false
}

// take asks the decider, by the policy that the plan is for. What is to be settled is
// reserved.
func (x *exchange) take(ctx context.Context) error {
	found, err := x.plan.policy.Decide(x.facts, 1, x.checks[:0])
	if err != nil {
		return err
	}
	x.checks = found.Checks
	x.ask = decide.Ask{
		Op: headgate.OpTake, Descriptor: x.facts, Cost: 1,
		Policy: x.plan.policy, Checks: found.Checks, Denied: found.Denied, Allowed: found.Allowed,
	}
	var decisions []headgate.Decision
	if x.g.settling.estimate(found.Checks) {
		terms := headgate.Terms{For: x.plan.policy.Term(found.Checks)}
		x.reservation, decisions, err = x.g.decider.Reserve(ctx, terms, &x.ask, x.decisions[:0])
	} else {
		decisions, err = x.g.decider.Take(ctx, &x.ask, x.decisions[:0])
	}
	if err == nil {
		x.decisions = decisions
	}
	return err
}

// undecided deals with a request that there is no verdict on. It reports false if
// it has answered it.
func (x *exchange) undecided(ctx context.Context, err error) bool {
	var wrong *headgate.InvalidError
	switch {
	case ctx.Err() != nil:
		// A client that hangs up while the store is asked must not get past the
		// limits by it.
		return x.gone(ctx.Err())
	case errors.As(err, &wrong):
		// The rules are valid: it is the request that they cannot be applied to.
		x.outcome = refused
		x.answer(uncountable(wrong))
		return false
	}
	if x.g.options.OnStoreError != httplimit.FailClosed && !httplimit.FailsClosed(x.checks) {
		x.outcome = open
		return true
	}
	x.outcome = unavailable
	p := httplimit.ReducedCapacity(httplimit.UnavailableFor)
	x.answer(&p)
	return false
}

// gone answers a request whose context has ended.
func (x *exchange) gone(err error) bool {
	x.outcome = clientGone
	if errors.Is(err, context.DeadlineExceeded) {
		x.outcome = unavailable
		p := httplimit.ReducedCapacity(httplimit.UnavailableFor)
		p.Detail = "The request's deadline came before the rate limiter's decision."
		x.answer(&p)
		return false
	}
	x.w.WriteHeader(httplimit.StatusClientGone)
	return false
}

// turnAway answers a request for which there is no permit.
func (x *exchange) turnAway(full *busyLimit, err error) {
	var wrong *headgate.InvalidError
	if errors.As(err, &wrong) {
		x.outcome = refused
		x.answer(uncountable(wrong))
		return
	}
	x.outcome = shed
	x.answer(tooBusy(full))
}
