// Package decide turns requests into decisions, for all protocols.
//
// # Basics
//
// A door of the service decodes what it received into a [Request], calls [Request.Decide], and
// encodes the [Outcome] for its callers. A request of several descriptors, as Envoy sends it, is
// [Parts] instead. Doors know neither stores nor files. They ask a [Decider], and [Observe] adds
// observers to one.
//
// # Caveats
//
// A Request and its Outcome share memory that the next request reuses.
package decide

import (
	"context"
	"time"

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
	// Version is 1 at the start of the process, and grows by one with each change.
	Version int64
	// Hash identifies the content of the rules. It is the same on every node.
	Hash string
	// OnError is what happens while the store does not answer, for rules that do not say it. It is
	// OnErrorReturn if the store is one that always answers.
	OnError headgate.OnError
}

// Decide returns what binds a request. If the policy has nested limits, the entries of the
// descriptor must be in the order of the nesting, and the entry named "domain" is the domain.
func (p Policy) Decide(d policy.Descriptor, cost int64, dst []headgate.Check) (policy.Outcome, error) {
	if p.Nested == nil {
		return p.Set.Decide(d, cost, dst)
	}
	return p.Nested.Decide(d, cost, dst)
}

// Explain explains what Decide does with the request; see [explain.Request] and
// [nested.Tree.Explain].
func (p Policy) Explain(d policy.Descriptor, cost int64) explain.Explanation {
	if p.Nested == nil {
		return explain.Request(p.Set, d, cost)
	}
	return p.Nested.Explain(d, cost)
}

// Ask is one request to decide, with the checks that the rules have made from it.
type Ask struct {
	// Op is the operation.
	Op headgate.Op
	// Descriptor and Cost describe the request. If the caller named rules and keys itself, there is
	// no descriptor.
	Descriptor policy.Descriptor
	Cost       int64
	// Named are the checks as the caller has named them. A candidate makes checks of its own from
	// them.
	Named []Named
	// At is the time at which the units of a refund were charged; see [headgate.Check.At].
	At int64

	// Policy is the policy that has made the checks.
	Policy Policy
	// Checks are the checks that bind the request. Without any, it passes.
	Checks []headgate.Check
	// Unenforced are the names of the rules whose bounds on what is in progress also bind the
	// request. They are not enforced, because a check does not know when the request ends.
	Unenforced []string
	// Denied and Allowed are the entries of the policy's lists that answer the request without its
	// limits, or nil; see [policy.Outcome].
	Denied, Allowed *policy.ListEntry

	// Took is how long the store took; zero if it was not asked. [Over] sets it.
	Took time.Duration

	// Parts is set if this is a call for a request of several descriptors, which may need further
	// calls. Otherwise it is nil.
	Parts *Parts
}

// Named is a check that a caller has named; see [policy.Set.Check].
type Named struct {
	Rule, Key string
	// Cost is the number of units, 1 to headgate.MaxCount.
	Cost int64
	// Given says which of the fields the caller has sent.
	Given Given
}

// Decider decides requests. Implementations are safe for concurrent use, and keep
// nothing of an Ask beyond the call.
type Decider interface {
	// Policy returns the rules in force. A request uses one Policy throughout.
	Policy() Policy

	// Take carries out an Ask whose Policy, Checks and lists are filled in, and appends the
	// decisions to dst, as [headgate.Store] does. Without checks it appends nothing. Every request
	// must pass through Take, even if a list has answered it, so that a candidate sees all
	// requests.
	Take(ctx context.Context, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error)

	// TakeOnce and Reserve are like Take with OpTake, on the terms of [headgate.Ledger].
	TakeOnce(ctx context.Context, terms headgate.Terms, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error)
	Reserve(ctx context.Context, terms headgate.Terms, ask *Ask, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error)
	// Recall and Settle do what they do in [headgate.Ledger].
	Recall(ctx context.Context, id string) (headgate.Reservation, error)
	Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error)

	// Told is called by [Parts.Take] after all calls of Take for a request of several descriptors,
	// with the error that ended them.
	Told(p *Parts, err error)
}

// Resolve asks the Policy about the Descriptor and Cost, and sets Checks, Denied, Allowed and
// Unenforced. The error is that of [Policy.Decide].
func (a *Ask) Resolve() error {
	outcome, err := a.Policy.Decide(a.Descriptor, a.Cost, a.Checks[:0])
	a.Checks, a.Denied, a.Allowed = outcome.Checks, outcome.Denied, outcome.Allowed
	a.Unenforced = policy.Unenforced(a.Unenforced[:0], outcome.Bounds)
	return err
}
