package admission

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

// Load is what one request holds of a gate that bounds the work in progress: from before
// its limits are asked, so that nothing is charged for what is refused, until its work has
// ended. The zero Load has no gate, and its methods do nothing. It is not safe for
// concurrent use.
type Load struct {
	// Gate is asked for the Request.
	Gate    flow.Gate
	Request flow.Request
	// Permit is what the gate has given.
	Permit flow.Permit
}

// Enter asks the gate. Its errors are those of a [flow.Gate].
func (l *Load) Enter(ctx context.Context) (err error) {
	if l.Gate != nil {
		l.Permit, err = l.Gate.Acquire(ctx, l.Request)
	}
	return err
}

// Sleep waits for d without a permit: a request that is held by its own limits is not in
// progress. The error is the context's, or the gate's, if that does not let the request in
// again.
func (l *Load) Sleep(ctx context.Context, d time.Duration) error {
	l.Permit.Done(flow.Unused)
	if err := Sleep(ctx, d); err != nil {
		return err
	}
	return l.Enter(ctx)
}

// Refused returns what becomes of a request that a gate has not let in, and the rejection
// if it is Shed. A gate that depends on a store fails as that does.
func (f Failure) Refused(ctx context.Context, err error) (Outcome, *flow.Rejection) {
	rejection, refused := errors.AsType[*flow.Rejection](err)
	outcome := Unavailable
	switch {
	case refused:
		outcome = Shed
	case errors.Is(err, headgate.ErrInvalid):
		outcome = Broken
	case ctx.Err() != nil:
		outcome = Ended
	case f.admits(nil):
		outcome = Open
	}
	return outcome, rejection
}

// enter asks the gate of the group, if the request is to pass it.
func (a *Attempt[R]) enter(ctx context.Context, r R) Outcome {
	g := a.gate
	a.load = Load{}
	if g.group.Gate == nil {
		return Passed
	}
	request, ok := g.group.Describe(r)
	if !ok {
		return Passed
	}
	a.load.Gate, a.load.Request = g.group.Gate, request
	return a.refused(ctx, r, a.load.Enter(ctx))
}

// refused returns the outcome of an error of the gate. A request that gets past the gate
// because that has failed goes on to its limits.
func (a *Attempt[R]) refused(ctx context.Context, r R, err error) (outcome Outcome) {
	if err == nil {
		return Passed
	}
	a.Err = err
	if outcome, a.Rejection = a.gate.Failure.Refused(ctx, err); outcome == Open {
		a.gate.failed(r, err)
		a.Err, outcome = nil, Passed
	} else if outcome == Ended {
		a.Err = ctx.Err()
	}
	return outcome
}

// Done gives back the permit that the passage holds of the gate for the work in progress,
// and tells that how the work has ended. Only the first Done counts; it reports whether it
// was this one.
func (p *Passage[R]) Done(outcome flow.Outcome) bool { return p.permit.Done(outcome) }

// Done is that of the passage in a context, if there is one.
func Done[R any](ctx context.Context, outcome flow.Outcome) bool {
	p, ok := ctx.Value(costKey[R]{}).(*Passage[R])
	return ok && p.Done(outcome)
}

// maxTenant bounds the name of a tenant that a header claims.
const maxTenant = 256

// Claim has the request be of the class and the tenant that a trusted peer claims for it, by
// the lines of two headers. A claim that is not one line, or names no class, does not count.
func Claim(request *flow.Request, class, tenant []string) {
	if len(class) == 1 {
		if c, err := flow.ParseClass(class[0]); err == nil {
			request.Class = c
		}
	}
	if len(tenant) == 1 && tenant[0] != "" && len(tenant[0]) <= maxTenant {
		request.Tenant = tenant[0]
	}
}
