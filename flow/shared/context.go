package shared

import (
	"context"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/store"
)

// binding is what a context knows about the gate's permits.
type binding struct {
	permit flow.Permit
	key    string
	outer  *binding
}

// permits reports whether the context holds a permit, and whether a request for the key is
// part of what it was given for.
func (b *binding) permits(key string) (inside, free bool) {
	for ; b != nil; b = b.outer {
		if b.permit.Held() {
			inside = true
			if b.key == key {
				return true, true
			}
		}
	}
	return inside, false
}

// holdingKey is the context key of the innermost lease.
type holdingKey struct{}

// leaseContext ends when the lease is lost.
type leaseContext struct {
	context.Context
	h *holding
}

// Err ends the context if the lease has ended and nothing has noticed that yet, such as after the
// process was stopped for a while.
func (c leaseContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.h.check() == nil {
		return nil
	}
	return c.Context.Err()
}

// Bind implements [flow.Holder]. The context ends when the permit is given back or lost.
func (h *holding) Bind(ctx context.Context, p flow.Permit) context.Context {
	g := h.gate
	outer, _ := ctx.Value(g).(*binding)
	ctx, cancel := context.WithCancelCause(ctx)
	ctx = context.WithValue(ctx, g, &binding{p, h.entry.key, outer})
	ctx = context.WithValue(ctx, holdingKey{}, h)
	g.mu.Lock()
	if why := h.why; why != nil || h.state == given {
		g.mu.Unlock()
		cancel(why)
	} else {
		h.cancels = append(h.cancels, cancel)
		g.mu.Unlock()
	}
	return leaseContext{ctx, h}
}

// FenceOf returns the fence of the innermost permit for which the context was made; see
// [store.Fence]. If the lease was lost or has ended, the error wraps [ErrLost]. The error is
// [ErrNoLease] if the context has no permit of a [Gate], or only one that was given while the store
// did not answer.
func FenceOf(ctx context.Context) (store.Fence, error) {
	h, ok := ctx.Value(holdingKey{}).(*holding)
	if !ok {
		return store.Fence{}, ErrNoLease
	}
	if err := h.check(); err != nil {
		return store.Fence{}, err
	}
	g := h.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case h.why != nil:
		return store.Fence{}, h.why
	case h.state != leased:
		return store.Fence{}, ErrNoLease
	}
	return h.lease.Fence, nil
}
