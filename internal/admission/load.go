package admission

import (
	"context"
	"errors"
	"net/textproto"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

// Load is one request's permit of a gate that bounds the work in progress. The permit is acquired
// before the limits are asked, so that a refused request is charged nothing, and is held until the
// work has ended. The zero Load has no gate, and its methods do nothing. It is not safe for
// concurrent use.
type Load struct {
	// Gate is asked for a permit for Request.
	Gate    flow.Gate
	Request flow.Request
	// Permit is the permit that the gate has given.
	Permit flow.Permit
}

// Enter asks the gate. Its errors are those of a [flow.Gate].
func (l *Load) Enter(ctx context.Context) (err error) {
	if l.Gate != nil {
		l.Permit, err = l.Gate.Acquire(ctx, l.Request)
	}
	return err
}

// Sleep waits for d without a permit, because a request that is held by its own limits is not in
// progress. Then it asks the gate again. The error is the context's or the gate's.
func (l *Load) Sleep(ctx context.Context, d time.Duration) error {
	l.Permit.Done(flow.Unused)
	if err := Sleep(ctx, d); err != nil {
		return err
	}
	return l.Enter(ctx)
}

// Refused returns the outcome of a request that a gate has not let in, and the rejection if it is
// Shed. If a gate depends on a store, its errors are handled like errors of the store.
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

// enter asks the group's gate, if the request has to pass it.
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

// refused returns the outcome for an error of the gate. If the gate has failed and fails open, the
// request goes on to its limits.
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

// Done gives back the passage's permit of the gate for the work in progress, and tells the gate how
// the work has ended. Only the first call counts; Done reports whether this was the first.
func (p *Passage[R]) Done(outcome flow.Outcome) bool { return p.permit.Done(outcome) }

// Done calls [Passage.Done] of the passage in a context, if there is one.
func Done[R any](ctx context.Context, outcome flow.Outcome) bool {
	p, ok := ctx.Value(costKey[R]{}).(*Passage[R])
	return ok && p.Done(outcome)
}

// maxTenant bounds the name of a tenant that a header claims.
const maxTenant = 256

// Claim sets the request's class and tenant to those that a trusted peer claims in two headers, of
// which the lines are given. A header with more or fewer lines than one, or without a valid class,
// is ignored.
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

// IsEvents reports whether the lines of a Content-Type header are those of server-sent events, an
// answer that lasts as long as its reader likes. Its duration says nothing about load, and nothing
// may wait for its end.
func IsEvents(contentType []string) bool {
	if len(contentType) == 0 {
		return false
	}
	kind, _, _ := strings.Cut(contentType[0], ";")
	return strings.EqualFold(textproto.TrimString(kind), "text/event-stream")
}
