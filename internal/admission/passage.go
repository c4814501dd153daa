package admission

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
)

// End is how a request has ended.
type End struct {
	// Status is the HTTP status of the answer, or the one that stands for it.
	Status int
	// Cost is what the request has cost in units, if there is a reservation to settle.
	Cost int64
}

// Held is something that a passage holds while its request is served, and that ends with
// it. End is called once.
type Held interface {
	End(ctx context.Context, end End) error
}

// Passage is an admitted request of which something depends on how it ends. It is told by
// [Passage.End], once.
type Passage[R any] struct {
	gate    *Gate[R]
	ctx     context.Context // the request's own
	request R
	permits []flow.Permit
	held    []Held
	permit  flow.Permit  // of the gate for the work in progress
	settles bool         // End asks for the cost
	said    atomic.Int64 // the cost that the handler has said, or -1
}

// newPassage returns what is to be told how the request ends, or nil.
func (a *Attempt[R]) newPassage(ctx context.Context, r R) *Passage[R] {
	g := a.gate
	reserved := a.Reservation.ID != ""
	charges := a.Outcome == Passed && (reserved || g.rules != nil && g.rules.Awaits(a.Checks))
	if !charges && len(a.held) == 0 && !a.load.Permit.Held() {
		return nil
	}
	// The attempt is used again for another request. What is kept of it is copied.
	p := &Passage[R]{gate: g, ctx: ctx, request: r, permits: slices.Clone(a.held), permit: a.load.Permit, settles: reserved}
	p.said.Store(-1)
	if charges {
		kept := &charged{Charge{Store: a.Store, Ledger: a.Ledger, Reservation: a.Reservation}, g.rules}
		if !reserved {
			kept.Checks = a.Charged()
		}
		p.held = []Held{kept}
	}
	return p
}

// costKey is what a context has the passage of a request under. Adapters have keys of
// their own by the type of their requests.
type costKey[R any] struct{}

// Context returns a context by which [SetCost] and [Done] find the passage, and by which
// the permits are known that it holds. If there is nothing of that, it is ctx itself.
func (p *Passage[R]) Context(ctx context.Context) context.Context {
	ctx = inprogress.Context(ctx, p.permits)
	if !p.settles && !p.permit.Held() {
		return ctx
	}
	return context.WithValue(p.permit.Context(ctx), costKey[R]{}, p)
}

// SetCost notes what the request of that context has really cost, and reports whether
// there is a passage that wants to know. The last call counts.
func SetCost[R any](ctx context.Context, cost int64) bool {
	p, ok := ctx.Value(costKey[R]{}).(*Passage[R])
	if !ok || !p.settles {
		return false
	}
	p.said.Store(max(cost, 0))
	return true
}

// End ends everything that the passage holds. Permits go first, as others may wait for
// them; the rest follows in the reverse of the order in which it was taken. If there is a
// reservation to settle, cost is asked what the request has really cost; it is handed the request, and what the handler has said, or -1. End outlives the
// request's context by a second for each thing at most. A permit that was not given back
// by [Passage.Done] says nothing about the work.
func (p *Passage[R]) End(status int, cost func(r R, said int64) int64) {
	p.Leave()
	end := End{Status: status}
	if p.settles {
		end.Cost = cost(p.request, p.said.Load())
	}
	for i := len(p.held) - 1; i >= 0; i-- {
		if err := p.held[i].End(p.ctx, end); err != nil {
			p.gate.failed(p.request, err)
		}
	}
}

// Leave gives the permits back, which End does as well.
func (p *Passage[R]) Leave() {
	p.permit.Done(flow.Ignore)
	inprogress.Leave(p.permits, flow.Ignore)
}

// charged is the units of an admitted request.
type charged struct {
	Charge
	rules *policy.Set // nil if there is no policy
}

// End implements [Held].
func (c *charged) End(ctx context.Context, end End) error {
	if c.Reservation.ID == "" {
		return c.Refund(ctx, Uncharged(c.rules, c.Checks, end.Status))
	}
	if err := costError("Settle", end.Cost); err != nil {
		return fmt.Errorf("%w; the request stays charged as estimated", err)
	}
	units := c.Reservation.Units(end.Cost)
	if c.rules != nil {
		units = c.rules.Settle(&c.Reservation, end.Cost, end.Status)
	}
	_, err := c.Charge.Settle(ctx, units)
	return err
}
