package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

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

// take asks the decider, by the policy that the plan is for.
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
	decisions, err := x.g.decider.Take(ctx, &x.ask, x.decisions[:0])
	if err == nil {
		x.decisions = decisions
	}
	return err
}

// giveBack gives back what a request has taken.
func (x *exchange) giveBack(ctx context.Context, checks []headgate.Check) {
	ask := decide.Ask{Op: headgate.OpRefund, Descriptor: x.facts, Cost: 1, Policy: x.plan.policy, Checks: checks}
	if _, err := x.g.decider.Take(ctx, &ask, nil); err != nil {
		x.g.options.Logger.LogAttrs(ctx, slog.LevelError, "what a request took could not be given back", slog.Any("error", err))
	}
}

// settleWithin bounds what is done about a request that has ended.
const settleWithin = time.Second

// settle gives back what a request is not charged for that has ended with this
// status.
func (x *exchange) settle(status int) {
	if !x.decided || !x.verdict.Allowed || !x.plan.policy.Awaits(x.ask.Checks) {
		return
	}
	var back []headgate.Check
	for _, c := range httplimit.Charged(x.ask.Checks, x.decisions) {
		if !x.plan.policy.Charged(&c, status) {
			back = append(back, c)
		}
	}
	if len(back) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), settleWithin)
	defer cancel()
	x.giveBack(ctx, back)
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
	closed := x.g.options.OnStoreError == httplimit.FailClosed
	for i := range x.checks {
		closed = closed || x.checks[i].OnError == headgate.OnErrorDeny
	}
	if !closed {
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
