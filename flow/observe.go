package flow

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Hooks are called by the gate that [Observe] returns. Any of them may be nil. They
// run in the caller's goroutine and must be quick.
type Hooks struct {
	// Admitted is called when a request gets a permit, with the time that it took to get it.
	Admitted func(ctx context.Context, r Request, waited time.Duration)
	// Rejected is called when the gate refuses a request.
	Rejected func(ctx context.Context, r Request, rejection *Rejection, waited time.Duration)
	// Failed is called when the gate returns an error that is not a Rejection.
	Failed func(ctx context.Context, r Request, err error, waited time.Duration)
	// Done is called when a permit is given back, with the time since the work began; see
	// [Permit.Begin]. r is the request for which the permit was given.
	Done func(r Request, outcome Outcome, held time.Duration)
}

// Observe returns a gate that answers like the given one and calls the hooks.
func Observe(gate Gate, hooks Hooks) Gate {
	o := &observed{gate: gate, hooks: hooks}
	o.pool.New = func() any { return &watched{of: o} }
	return o
}

type observed struct {
	gate  Gate
	hooks Hooks
	pool  sync.Pool // of *watched
}

// watched is what an observed gate remembers of a permit.
type watched struct {
	Slot
	of     *observed
	permit Permit
	r      Request
	began  time.Time
}

func (o *observed) Acquire(ctx context.Context, r Request) (Permit, error) {
	began := time.Now()
	p, err := o.gate.Acquire(ctx, r)
	return o.report(ctx, r, p, err, began)
}

func (o *observed) TryAcquire(ctx context.Context, r Request) (Permit, error) {
	began := time.Now()
	p, err := o.gate.TryAcquire(ctx, r)
	return o.report(ctx, r, p, err, began)
}

func (o *observed) report(
	ctx context.Context, r Request, p Permit, err error, began time.Time,
) (Permit, error) {
	now := time.Now()
	if err != nil {
		rejection, refused := errors.AsType[*Rejection](err)
		switch {
		case refused && o.hooks.Rejected != nil:
			o.hooks.Rejected(ctx, r, rejection, now.Sub(began))
		case !refused && o.hooks.Failed != nil:
			o.hooks.Failed(ctx, r, err, now.Sub(began))
		}
		return Permit{}, err
	}
	if o.hooks.Admitted != nil {
		o.hooks.Admitted(ctx, r, now.Sub(began))
	}
	if o.hooks.Done == nil {
		return p, nil
	}
	h := o.pool.Get().(*watched)
	h.permit, h.r, h.began = p, r, now
	return h.Issue(h), nil
}

// GiveBack implements [Holder].
func (h *watched) GiveBack(outcome Outcome) {
	h.permit.Done(outcome)
	h.of.hooks.Done(h.r, outcome, time.Since(h.began))
	h.permit, h.r = Permit{}, Request{}
	h.of.pool.Put(h)
}

// Begin implements [Beginner].
func (h *watched) Begin() {
	h.began = time.Now()
	h.permit.Begin()
}

// Bind implements [Holder].
func (h *watched) Bind(ctx context.Context, _ Permit) context.Context {
	return h.permit.Context(ctx)
}
