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
//   - a [*Rejection]: the gate refused, for a reason that it states;
//   - a [*headgate.InvalidError]: the request can never be asked like that;
//   - the context's error, wrapped: it ended before the gate had decided;
//   - any other error: what the gate depends on has failed, such as a store.
//
// With an error the Permit is the zero Permit, and nothing is held or charged.
type Gate interface {
	// Acquire returns when the work may begin or when it is refused. It waits if the
	// gate has a queue, for as long as the gate and the context allow.
	//
	// If the context is one that [Permit.Context] made for this gate, the work is
	// part of what the gate has already let in, and Acquire never waits. A gate
	// without keys lets it pass and takes nothing. A gate with keys does the same for
	// the key of that permit; another key is taken if it is free.
	Acquire(ctx context.Context, r Request) (Permit, error)
	// TryAcquire is Acquire without waiting: what would have to wait is refused.
	TryAcquire(ctx context.Context, r Request) (Permit, error)
}

// Request is what a gate is told about the work. The zero Request asks for one unit
// of class Critical.
type Request struct {
	// Key is what the gate counts by: a client, an account, a route. Gates without
	// keys ignore it.
	Key string
	// Tenant is whom the work is for. Gates with a queue serve tenants in turn, so
	// that one of them cannot fill the queue alone. If it is empty, Key takes its
	// place.
	Tenant string
	// Cost is how many units the work takes, 1 to headgate.MaxCount. Zero means one.
	Cost int64
	// Class is how much the work matters beside other work.
	Class Class
	// Limit is how many units of the key may be in progress for this request to begin,
	// up to headgate.MaxCount. Zero means the gate's own limit, and so does any value
	// where the gate has no keys. It is for bounds that depend on who asks, such as a
	// tariff.
	Limit int64
}

// Units is the cost, with zero taken for one.
func (r *Request) Units() int64 {
	if r.Cost == 0 {
		return 1
	}
	return r.Cost
}

// Flow is what a queue tells requests apart by, to serve them in turn: the tenant,
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
	if r.Cost >= 0 && r.Cost <= headgate.MaxCount && r.Class.known() && r.Limit >= 0 && r.Limit <= headgate.MaxCount {
		return nil
	}
	var problems headgate.Problems
	if r.Cost < 0 || r.Cost > headgate.MaxCount {
		problems.Add("cost", "the cost is %d, must be 1 to %d, or 0 for 1", r.Cost, headgate.MaxCount)
	}
	if !r.Class.known() {
		problems.Add("class", "the class is %d, must be %d (%v) to %d (%v)", int8(r.Class),
			int8(Sheddable), Sheddable, int8(CriticalPlus), CriticalPlus)
	}
	if r.Limit < 0 || r.Limit > headgate.MaxCount {
		problems.Add("limit", "the limit is %d, must be 1 to %d, or 0 for that of the gate", r.Limit, headgate.MaxCount)
	}
	return problems.Err("request")
}

// Ended is the error of a gate whose caller's context ended before the gate had
// decided. It wraps the context's cause. It is for authors of gates.
func Ended(ctx context.Context, gate string) error {
	return fmt.Errorf("flow: gate %q: waiting for a permit: %w", gate, context.Cause(ctx))
}
