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

// Passage is an admitted request for which something depends on how it ends. Call [Passage.End]
// once when it has ended.
type Passage[R any] struct {
	gate    *Gate[R]
	ctx     context.Context // the request's own
	request R
	permits []flow.Permit
	held    []Held
	permit  flow.Permit  // the permit of the gate for the work in progress
	settles bool         // there is a reservation, so End asks for the cost
	said    atomic.Int64 // the cost that the handler has set, or -1
}

// newPassage returns the passage of the request, or nil if nothing depends on how the request ends.
func (a *Attempt[R]) newPassage(ctx context.Context, r R) *Passage[R] {
	g := a.gate
	reserved := a.Reservation.ID != ""
	charges := a.Outcome == Passed && (reserved || a.Rules != nil && a.Rules.Awaits(a.Checks))
	if !charges && len(a.held) == 0 && !a.load.Permit.Held() {
		return nil
	}
	// The attempt is reused for another request, so the passage copies what it keeps.
	p := &Passage[R]{gate: g, ctx: ctx, request: r, permits: slices.Clone(a.held), permit: a.load.Permit, settles: reserved}
	p.said.Store(-1)
	if charges {
		kept := &charged{Charge{Store: a.Store, Ledger: a.Ledger, Reservation: a.Reservation}, a.Rules}
		if !reserved {
			kept.Checks = a.Charged()
		}
		p.held = []Held{kept}
	}
	return p
}

// costKey is the key of a request's passage in a context. Adapters with different types of requests
// have different keys.
type costKey[R any] struct{}

// Context returns a context in which [SetCost] and [Done] find the passage, and which carries the
// permits that it holds. If neither is needed, it returns ctx itself.
func (p *Passage[R]) Context(ctx context.Context) context.Context {
	ctx = inprogress.Context(ctx, p.permits)
	if !p.settles && !p.permit.Held() {
		return ctx
	}
	return context.WithValue(p.permit.Context(ctx), costKey[R]{}, p)
}

// SetCost sets the real cost of the request of a context. It reports whether the request has a
// reservation to settle. The last call counts.
func SetCost[R any](ctx context.Context, cost int64) bool {
	p, ok := ctx.Value(costKey[R]{}).(*Passage[R])
	if !ok || !p.settles {
		return false
	}
	p.said.Store(max(cost, 0))
	return true
}

// End ends everything that the passage holds. Permits go first, because others may wait for them.
// The rest follows in the reverse of the order in which it was taken. If there is a reservation to
// settle, End calls cost for the real cost of the request, with the request and the cost that the
// handler has set, or -1. End outlives the request's context by at most a second for each thing
// that it ends. A permit that [Passage.Done] did not give back says nothing about the work.
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

// Leave gives the permits back. End does so as well.
func (p *Passage[R]) Leave() {
	p.permit.Done(flow.Ignore)
	inprogress.Leave(p.permits, flow.Ignore)
}

// charged are the units of an admitted request, which are settled or given back when it ends.
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
