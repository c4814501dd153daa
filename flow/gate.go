package flow

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
)

// Gate decides whether work may begin. Implementations are safe for concurrent use.
//
// Both methods return a Permit, or an error that is one of these:
//
//   - a [*Rejection]: the gate refused, and states the reason;
//   - a [*headgate.InvalidError]: the request itself is invalid;
//   - the context's error, wrapped: the context ended before the gate had decided;
//   - any other error: something that the gate depends on, such as a store, has failed.
//
// With an error the Permit is the zero Permit, and nothing is held or charged.
type Gate interface {
	// Acquire returns when the work may begin, or when the gate refuses. If the gate has a queue,
	// Acquire waits for as long as the gate and the context allow.
	//
	// If the context is one that [Permit.Context] made for this gate, the work is part of what the
	// gate has already admitted, and Acquire never waits. A gate without keys then admits it
	// without a further permit. A gate with keys does the same for the key of that permit; for
	// another key it grants a permit if one is free.
	Acquire(ctx context.Context, r Request) (Permit, error)
	// TryAcquire is like Acquire but never waits: the gate refuses what would have to wait.
	TryAcquire(ctx context.Context, r Request) (Permit, error)
}

// Request describes the work to a gate. The zero Request asks for one unit of class Critical.
type Request struct {
	// Key is what the gate counts by: a client, an account, a route. Gates without
	// keys ignore it.
	Key string
	// Tenant is the customer for whom the work is done. Gates with a queue serve tenants in turn,
	// so that one of them cannot fill the queue alone. If Tenant is empty, Key is used instead.
	Tenant string
	// Cost is how many units the work takes, 1 to headgate.MaxPermits. Zero means one.
	Cost int64
	// Class is how much the work matters beside other work.
	Class Class
	// Limit is how many units of the key may be in progress, including this request, up to
	// headgate.MaxPermits. Zero means the gate's own limit. Gates without keys ignore it. It is for
	// limits that depend on the caller, such as on a tariff.
	Limit int64
}

// Units returns the cost, or 1 if the cost is zero.
func (r *Request) Units() int64 {
	if r.Cost == 0 {
		return 1
	}
	return r.Cost
}

// Flow returns the value by which a queue tells requests apart, to serve them in turn: the tenant,
// or the key if there is no tenant.
func (r *Request) Flow() string {
	if r.Tenant != "" {
		return r.Tenant
	}
	return r.Key
}

// Validate returns nil, or a [*headgate.InvalidError] that lists what is wrong with
// the cost, the class and the limit. Gates call it; callers need not.
func (r *Request) Validate() error {
	if r.Cost >= 0 && r.Cost <= headgate.MaxPermits && r.Class.known() && r.Limit >= 0 && r.Limit <= headgate.MaxPermits {
		return nil
	}
	var problems headgate.Problems
	if r.Cost < 0 || r.Cost > headgate.MaxPermits {
		problems.Add("cost", "the cost is %d, must be 1 to %d, or 0 for 1", r.Cost, headgate.MaxPermits)
	}
	if !r.Class.known() {
		problems.Add("class", "the class is %d, must be %d (%v) to %d (%v)", int8(r.Class),
			int8(Sheddable), Sheddable, int8(CriticalPlus), CriticalPlus)
	}
	if r.Limit < 0 || r.Limit > headgate.MaxPermits {
		problems.Add("limit", "the limit is %d, must be 1 to %d, or 0 for that of the gate", r.Limit, headgate.MaxPermits)
	}
	return problems.Err("request")
}

// Ended returns the error for a caller whose context ended before the gate had decided. It wraps
// the context's cause. It is for authors of gates.
func Ended(ctx context.Context, gate string) error {
	return fmt.Errorf("flow: gate %q: waiting for a permit: %w", gate, context.Cause(ctx))
}
