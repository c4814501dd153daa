package grpclimit

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// giveBackWithin bounds a call to the store that must outlive the call's context.
const giveBackWithin = time.Second

// take has the store decide, and reserves if the cost is to be settled.
func (s *Server) take(ctx context.Context, sc *scratch) (r headgate.Reservation, decisions []headgate.Decision, err error) {
	if s.ledger == nil {
		decisions, err = s.store.Take(ctx, headgate.OpTake, sc.checks, sc.decisions[:0])
		return r, decisions, err
	}
	var terms headgate.Terms
	if s.set != nil {
		terms.For = s.set.Term(sc.checks)
	}
	return s.ledger.Reserve(ctx, terms, sc.checks, sc.decisions[:0])
}

// release gives back what a call has taken that is not let in after all.
func (s *Server) release(ctx context.Context, c *Call, checks []headgate.Check, reservation headgate.Reservation) {
	if reservation.ID == "" {
		s.giveBack(ctx, c, checks)
		return
	}
	if _, err := s.ledger.Settle(ctx, reservation, make([]int64, len(reservation.Checks)), nil); err != nil {
		s.failed(c, fmt.Errorf("cancel what a call has reserved: %w", err))
	}
}

func (s *Server) giveBack(ctx context.Context, c *Call, checks []headgate.Check) {
	if len(checks) == 0 {
		return
	}
	if _, err := s.store.Take(ctx, headgate.OpRefund, checks, nil); err != nil {
		s.failed(c, fmt.Errorf("give back what a call took: %w", err))
	}
}

// passage is an admitted call whose charge depends on how it ends.
type passage struct {
	s           *Server
	call        *Call
	charged     []headgate.Check     // unless there is a
	reservation headgate.Reservation // that holds them
	cost        atomic.Int64         // that the handler said, or -1
}

// newPassage returns what is to be told of the call's end, or nil.
func (s *Server) newPassage(c *Call, checks []headgate.Check, decisions []headgate.Decision, reservation headgate.Reservation) *passage {
	if reservation.ID == "" && (s.set == nil || !s.set.Awaits(checks)) {
		return nil
	}
	p := &passage{s: s, call: c, reservation: reservation}
	p.cost.Store(-1)
	if reservation.ID == "" {
		// The checks stand in a scratch that the next call uses.
		p.charged = httplimit.Charged(append([]headgate.Check(nil), checks...), decisions)
	}
	return p
}

// costKey is what the context of a call has its passage under.
type costKey struct{}

// context returns a context by which [SetCost] finds the passage.
func (p *passage) context(ctx context.Context) context.Context {
	if p.reservation.ID == "" {
		return ctx
	}
	return context.WithValue(ctx, costKey{}, p)
}

// SetCost is for handlers behind an interceptor with [Settle]: it says what the call
// of that context has really cost, for the function of Settle to read. It reports
// whether there is such an interceptor. The last call counts.
func SetCost(ctx context.Context, cost int64) bool {
	p, ok := ctx.Value(costKey{}).(*passage)
	if ok {
		p.cost.Store(max(cost, 0))
	}
	return ok
}

// end settles what the call was charged. It outlives the call's context by a second
// at most.
func (p *passage) end(end End) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.call.ctx), giveBackWithin)
	defer cancel()
	status := httpStatus(end.Code)
	if p.reservation.ID == "" {
		p.refund(ctx, status)
		return
	}
	end.Cost = p.cost.Load()
	cost := p.s.settle(p.call, end)
	if cost < 0 || cost > headgate.MaxCount {
		p.s.failed(p.call, fmt.Errorf("%w; the call stays charged as estimated", costError("Settle", p.call, cost)))
		return
	}
	units := p.reservation.Units(cost)
	if p.s.set != nil {
		units = p.s.set.Settle(&p.reservation, cost, status)
	}
	if err := httplimit.SettleOrCharge(ctx, p.s.ledger, p.reservation, units); err != nil {
		p.s.failed(p.call, fmt.Errorf("settle what a call has cost: %w", err))
	}
}

// refund gives back what does not count by the call's outcome.
func (p *passage) refund(ctx context.Context, status int) {
	var back []headgate.Check
	for _, c := range p.charged {
		if !p.s.set.Charged(&c, status) {
			back = append(back, c)
		}
	}
	p.s.giveBack(ctx, p.call, back)
}
