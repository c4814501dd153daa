// Package decide is the one room where a request becomes a decision, whatever protocol it
// came by.
//
// # Basics
//
// A door of the service turns what it received into a [Request], has [Request.Decide] answer
// it, and turns the [Outcome] into what its callers understand. A request of several
// descriptors, as Envoy asks, is [Parts] instead. Doors know neither stores nor files; what
// they ask is a [Decider], which [Observe] lets others look at.
//
// # Caveats
//
// A Request and its Outcome share memory that the next request uses again.
package decide

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
	"github.com/headgate/headgate/policy/nested"
)

// Policy is one version of the rules. It is immutable.
type Policy struct {
	*policy.Set
	// Nested leads from ordered descriptors to rules of the Set. It is nil where
	// the policy has rules that match instead.
	Nested *nested.Tree
	// Version counts from 1, and up by one with each change while the process
	// runs.
	Version int64
	// Hash tells one content of the rules from another, on every node alike.
	Hash string
}

// Decide says what binds a request: what the Set says or, if the policy has nested
// limits, what these say of a descriptor whose entries are in their order, the domain
// being the one that is named so.
func (p Policy) Decide(d policy.Descriptor, cost int64, dst []headgate.Check) (policy.Outcome, error) {
	if p.Nested == nil {
		return p.Set.Decide(d, cost, dst)
	}
	return p.Nested.Decide(d, cost, dst)
}

// Explain says what Decide does with the request, and why: see [explain.Request] and
// [nested.Tree.Explain].
func (p Policy) Explain(d policy.Descriptor, cost int64) explain.Explanation {
	if p.Nested == nil {
		return explain.Request(p.Set, d, cost)
	}
	return p.Nested.Explain(d, cost)
}

// Ask is one request to decide, and what the rules made of it.
type Ask struct {
	// Op is what to do.
	Op headgate.Op
	// Descriptor and Cost are what is known of the request. A caller that named
	// rules and keys itself has no descriptor.
	Descriptor policy.Descriptor
	Cost       int64
	// Named are the checks that the caller named itself, as it did, for those who
	// have another policy make checks of them.
	Named []Named
	// At is, for a refund, when the units were charged; see [headgate.Check.At].
	At int64

	// Policy is what the checks were made by.
	Policy Policy
	// Checks are what binds the request. With none it passes.
	Checks []headgate.Check
	// Unenforced are the names of the rules whose bounds on what is in progress bind the
	// request too. A check does not know when the request ends, so it leaves them out.
	Unenforced []string
	// Denied and Allowed are the entries of the policy's lists that answer the
	// request without its limits, or nil; see [policy.Outcome].
	Denied, Allowed *policy.ListEntry

	// Parts is the request that this is a call for, if it has several descriptors:
	// there may be more calls. It is nil for all others.
	Parts *Parts
}

// Named is a check that a caller has named; see [policy.Set.Check].
type Named struct {
	Rule, Key string
	// Cost is how many units: 1 to headgate.MaxCount.
	Cost int64
	// Given says which of the fields the caller has sent.
	Given Given
}

// Decider decides requests. Implementations are safe for concurrent use, and keep
// nothing of an Ask beyond the call.
type Decider interface {
	// Policy returns the rules in force. A request uses one Policy throughout.
	Policy() Policy

	// Take carries out an Ask whose Policy, Checks and lists are filled in, and
	// appends the decisions to dst, as [headgate.Store] does. Without checks it
	// appends nothing. Every request is to pass here, one that a list has
	// answered too: the policies that are being tried want to see it.
	Take(ctx context.Context, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error)

	// TakeOnce and Reserve are Take with OpTake, as [headgate.Ledger] has them.
	TakeOnce(ctx context.Context, terms headgate.Terms, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error)
	Reserve(ctx context.Context, terms headgate.Terms, ask *Ask, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error)
	// Recall and Settle are as [headgate.Ledger] has them.
	Recall(ctx context.Context, id string) (headgate.Reservation, error)
	Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error)

	// Told hears of a request of several descriptors, once Take was called for what
	// it needed, and of the error that ended it. It is called by [Parts.Take].
	Told(p *Parts, err error)
}

// Resolve fills in what the ask's Policy makes of its Descriptor and Cost: Checks (from
// their beginning) and lists. The error is that of [Policy.Decide].
func (a *Ask) Resolve() error {
	outcome, err := a.Policy.Decide(a.Descriptor, a.Cost, a.Checks[:0])
	a.Checks, a.Denied, a.Allowed = outcome.Checks, outcome.Denied, outcome.Allowed
	a.Unenforced = policy.Unenforced(a.Unenforced[:0], outcome.Bounds)
	return err
}
