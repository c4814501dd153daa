// Package decide turns requests into decisions, for all protocols.
//
// # Basics
//
// A door of the service decodes what it received into a [Request], calls [Request.Decide], and
// encodes the [Outcome] for its callers. A request of several descriptors, as Envoy sends it, has
// [Parts]. Doors know neither stores nor files. They ask a [Decider], once for each request, and
// [Observe] adds observers to one.
//
// # Caveats
//
// A Request and its Outcome share memory that the next request reuses.
package decide

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
	"github.com/headgate/headgate/policy/models"
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

// Decide returns what binds a request; see [policy.Set.DecideUsage]. If the policy has nested limits, the entries of the
// descriptor must be in the order of the nesting, and the entry named "domain" is the domain.
func (p Policy) Decide(d policy.Descriptor, cost int64, u *models.Usage, dst []headgate.Check) (policy.Outcome, error) {
	if p.Nested == nil {
		return p.Set.DecideUsage(d, cost, u, dst)
	}
	return p.Nested.Decide(d, cost, dst)
}

// Explain explains what Decide does with the request; see [explain.Request] and
// [nested.Tree.Explain].
func (p Policy) Explain(d policy.Descriptor, cost int64, u *models.Usage) explain.Explanation {
	if p.Nested == nil {
		return explain.Request(p.Set, d, cost, u)
	}
	return p.Nested.Explain(d, cost)
}

// Knows reports whether the policy has rules for a domain of Envoy's protocol.
func (p Policy) Knows(domain string) bool { return p.Nested == nil || p.Nested.Has(domain) }

// Ask is one request to decide, with the checks that the rules have made from it.
type Ask struct {
	// Op is the operation.
	Op headgate.Op
	// Terms are those by which an OpTake is remembered, if they have an ID or Reserve is set. Reserve
	// says that the cost is an estimate, to be settled later. Both need a store that is a
	// [headgate.Ledger].
	Terms   headgate.Terms
	Reserve bool
	// Descriptor and Cost describe the request. If the caller named rules and keys itself, there is
	// no descriptor.
	Descriptor policy.Descriptor
	Cost       int64
	// Usage is what a call to a language model may use, or nil. Without a Model, the model is the
	// entry of that name.
	Usage *models.Usage
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

	// Parts are the descriptors of a request that has several, or nil. Each has an operation, a cost
	// and entries of its own, in the place of Op, Cost and Descriptor.
	Parts *Parts

	// Took is how long the store took; zero if it was not asked. Reservation is what Reserve has made;
	// it is zero if the request was denied. [Over] sets both.
	Took        time.Duration
	Reservation headgate.Reservation
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

	// Take carries out an Ask that was resolved, and appends the decisions to dst, as
	// [headgate.Store] and [headgate.Ledger] do. Without checks it appends nothing. Every request must
	// pass through Take once, even if a list has answered it, so that observers see all requests.
	Take(ctx context.Context, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error)

	// Recall and Settle do what they do in [headgate.Ledger].
	Recall(ctx context.Context, id string) (headgate.Reservation, error)
	Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error)

	// Spent is told of each call to a language model that was settled.
	Spent(ctx context.Context, s *models.Spending)
}

// Resolve asks the Policy about the Descriptor and Cost, or about the Parts, and sets Checks, Denied,
// Allowed and Unenforced. The error is that of [Policy.Decide]; if there are Parts, it is a
// [*DescriptorError].
func (a *Ask) Resolve() error {
	if a.Parts != nil {
		return a.Parts.resolve(a)
	}
	outcome, err := a.Policy.Decide(a.Descriptor, a.Cost, a.Usage, a.Checks[:0])
	a.Checks, a.Denied, a.Allowed = outcome.Checks, outcome.Denied, outcome.Allowed
	a.Unenforced = unenforced(a.Unenforced[:0], outcome.Bounds)
	return err
}

// unenforced appends to dst the names of the rules that the bounds belong to, each once.
func unenforced(dst []string, bounds []policy.Bound) []string {
	for i := range bounds {
		if b := &bounds[i]; !b.Old {
			dst = append(dst, b.Rule.Name)
		}
	}
	return dst
}

// Takes reports whether the request would take units, and is not only a peek, a refund or the like.
func (a *Ask) Takes() bool {
	return a.any(func(op headgate.Op, _ bool) bool { return op == headgate.OpTake })
}

// TurnedAway reports whether the request would take or peek, and is turned away whatever its counters
// say: by an entry of the deny list, or by a limit of zero.
func (a *Ask) TurnedAway() bool {
	return a.any(func(_ headgate.Op, turnedAway bool) bool { return turnedAway })
}

// Answered returns the name of the list entry that answered the whole request without its limits, and
// whether it turned the request away; "" if limits had a say. A limit of zero that came with a
// descriptor has the name [BroughtRule].
func (a *Ask) Answered() (entry string, denied bool) {
	switch {
	case a.Parts != nil:
		for i := range a.Parts.List {
			part := &a.Parts.List[i]
			if part.TurnsAway() {
				if part.Listed == nil {
					return BroughtRule, true
				}
				return part.Listed.Name, true
			}
			if part.Listed != nil && len(a.Checks) == 0 {
				entry = part.Listed.Name
			}
		}
		return entry, false
	case a.Denied != nil:
		return a.Denied.Name, true
	case a.Allowed != nil:
		return a.Allowed.Name, false
	}
	return "", false
}

func (a *Ask) any(is func(op headgate.Op, turnedAway bool) bool) bool {
	if a.Parts == nil {
		return is(a.Op, a.Denied != nil && (a.Op == headgate.OpTake || a.Op == headgate.OpPeek))
	}
	return slices.ContainsFunc(a.Parts.List, func(p Part) bool { return is(p.Op, p.TurnsAway()) })
}

// Verdict returns the outcome of the request, given the decisions that Take has appended.
func (a *Ask) Verdict(decisions []headgate.Decision) headgate.Verdict {
	v := headgate.NewVerdict(decisions)
	if a.TurnedAway() {
		v.Allowed, v.RetryAfter = false, headgate.Never
	}
	return v
}

// Calls calls visit for each call of the store that the request needed and that was answered: its own
// one, or those of its Parts. It belongs after Take, whose decisions it gets.
func (a *Ask) Calls(decisions []headgate.Decision, visit func(call *Ask, decisions []headgate.Decision)) {
	if a.Parts == nil {
		visit(a, decisions)
		return
	}
	for _, c := range a.Parts.calls[:a.Parts.called] {
		if c.answered {
			visit(&c.ask, c.decisions)
		}
	}
}
