package flow

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// Rate returns a gate that charges the limiter for each request, by the request's Key and Cost. It
// ignores the tenant and the class. name appears in its rejections.
//
// A denial is a [*Rejection] with [ReasonRate], the exact RetryAfter, and the decision in its
// Cause. Neither method waits for units to become free. If a leaky bucket delays a request, Acquire
// waits for that delay, and TryAcquire refuses. If the store fails, the gate returns its error:
// wrap the store if the gate is to fail open or fail closed.
//
// A charge stays, whatever the outcome, except that [Unused] is refunded. The refund has one second
// to reach the store. If it fails, the charge stays until the limit has refilled.
func Rate(name string, limiter *headgate.Limiter) Gate {
	g := &rate{name: name, limiter: limiter}
	g.pool.New = func() any { return &charged{of: g} }
	return g
}

type rate struct {
	name    string
	limiter *headgate.Limiter
	pool    sync.Pool // of *charged
}

// charged is what a rate needs in order to refund a permit.
type charged struct {
	Slot
	of   *rate
	key  string
	cost int64
	at   headgate.Instant // of the decision
}

// refundWithin bounds the time of a refund, because the caller's context may have ended.
const refundWithin = time.Second

func (g *rate) Acquire(ctx context.Context, r Request) (Permit, error) {
	p, delay, err := g.take(ctx, &r)
	if err != nil || delay == 0 {
		return p, err
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return p, nil
	case <-ctx.Done():
		p.Done(Unused)
		return Permit{}, Ended(ctx, g.name)
	}
}

func (g *rate) TryAcquire(ctx context.Context, r Request) (Permit, error) {
	p, delay, err := g.take(ctx, &r)
	if err != nil || delay == 0 {
		return p, err
	}
	p.Done(Unused)
	return Permit{}, &Rejection{
		Gate: g.name, Reason: ReasonRate, RetryAfter: delay, Retry: true,
		Cause: &headgate.DeniedError{Reason: fmt.Sprintf("it would have to be held for %v", delay)},
	}
}

// take charges the request, and returns for how long the request must be delayed.
func (g *rate) take(ctx context.Context, r *Request) (Permit, time.Duration, error) {
	if err := r.Validate(); err != nil {
		return Permit{}, 0, err
	}
	d, err := g.limiter.AllowN(ctx, r.Key, r.Units())
	if err != nil {
		return Permit{}, 0, fmt.Errorf("flow: gate %q: asking its limiter: %w", g.name, err)
	}
	if !d.Allowed {
		return Permit{}, 0, &Rejection{
			Gate: g.name, Reason: ReasonRate, RetryAfter: d.RetryAfter,
			Retry: d.RetryAfter != headgate.Never, Cause: &headgate.DeniedError{Decision: d},
		}
	}
	h := g.pool.Get().(*charged)
	h.key, h.cost, h.at = r.Key, r.Units(), d.At
	return h.Issue(h), d.Delay, nil
}

// GiveBack implements [Holder].
func (h *charged) GiveBack(outcome Outcome) {
	if outcome == Unused {
		ctx, cancel := context.WithTimeout(context.Background(), refundWithin)
		defer cancel()
		// The charge stays if the store cannot be reached, as Rate says.
		_ = h.of.limiter.Refund(ctx, h.key, h.cost, h.at)
	}
	h.key = "" // a pooled value must not keep the caller's key alive
	h.of.pool.Put(h)
}

// Bind implements [Holder]. Requests that are part of admitted work are charged like all others, so
// the context stays as it is.
func (h *charged) Bind(ctx context.Context, _ Permit) context.Context { return ctx }
