package flow

import (
	"context"
	"slices"
	"sync"
)

// Chain returns a gate that admits a request only if all of the given gates admit it. It asks them
// in order, and the first one that refuses decides. The permits of the gates before it are then
// given back as [Unused], in reverse order, so a rate is not charged for work that did not begin.
// The permit of a chain gives all its permits back in reverse order, with the same outcome. A chain
// of no gates admits everything.
//
// The order matters. While a gate makes its caller wait, the permits of the gates before it are
// held. So put a gate that waits before gates that do not, and cheap gates before those that ask a
// store. Keep the same order everywhere: two chains that wait at the same gates in different orders
// can block each other until their waits end.
func Chain(gates ...Gate) Gate {
	c := &chain{gates: slices.Clone(gates)}
	c.pool.New = func() any { return &chained{of: c, permits: make([]Permit, 0, len(gates))} }
	return c
}

type chain struct {
	gates []Gate
	pool  sync.Pool // of *chained
}

// chained is what a chain remembers of a permit.
type chained struct {
	Slot
	of      *chain
	permits []Permit
}

func (c *chain) Acquire(ctx context.Context, r Request) (Permit, error) {
	return c.enter(ctx, r, Gate.Acquire)
}

func (c *chain) TryAcquire(ctx context.Context, r Request) (Permit, error) {
	return c.enter(ctx, r, Gate.TryAcquire)
}

func (c *chain) enter(
	ctx context.Context, r Request, ask func(Gate, context.Context, Request) (Permit, error),
) (Permit, error) {
	h := c.pool.Get().(*chained)
	for _, gate := range c.gates {
		p, err := ask(gate, ctx, r)
		if err != nil {
			h.GiveBack(Unused)
			return Permit{}, err
		}
		h.permits = append(h.permits, p)
	}
	return h.Issue(h), nil
}

// GiveBack implements [Holder].
func (h *chained) GiveBack(outcome Outcome) {
	for _, p := range slices.Backward(h.permits) {
		p.Done(outcome)
	}
	clear(h.permits)
	h.permits = h.permits[:0]
	h.of.pool.Put(h)
}

// Begin implements [Beginner].
func (h *chained) Begin() {
	for _, p := range h.permits {
		p.Begin()
	}
}

// Bind implements [Holder].
func (h *chained) Bind(ctx context.Context, _ Permit) context.Context {
	for _, p := range h.permits {
		ctx = p.Context(ctx)
	}
	return ctx
}
