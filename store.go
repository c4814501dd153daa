package headgate

import (
	"context"
	"fmt"
	"time"
)

// Never is the RetryAfter of a cost that can never fit.
const Never time.Duration = -1

// Op is what a [Store] is asked to do with the checks of a request.
type Op uint8

const (
	// OpTake charges every check, if all of them admit the request, else none.
	OpTake Op = iota
	// OpPeek decides as OpTake would, and charges nothing.
	OpPeek
	// OpRefund gives the cost back. See [Check.At].
	OpRefund
	// OpReset forgets what each key has used under its rule.
	OpReset
	// OpCharge charges every check whether its limits admit it or not: for units
	// that were admitted already, by somebody who could not ask first. A limit
	// that has not so much left is overdrawn, and admits nothing until it would
	// have been free again: a bucket as long as it takes to refill what it owes, a
	// window for its period. The decisions tell the state after it, and are Allowed.
	OpCharge

	ops // the number of operations
)

// String returns "take", "peek", "refund", "reset" or "charge".
func (o Op) String() string {
	switch o {
	case OpTake:
		return "take"
	case OpPeek:
		return "peek"
	case OpRefund:
		return "refund"
	case OpReset:
		return "reset"
	case OpCharge:
		return "charge"
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// Check is a rule that binds one request: which counter, and how many units.
type Check struct {
	// Rule holds the limits. Required.
	Rule *Rule
	// Key is the value that the counter is kept for: up to MaxKey bytes, of any
	// kind. The empty key is a key like any other.
	Key string
	// Cost is the number of units, 1 to MaxCount. Zero means one; a request that
	// costs nothing needs no check.
	Cost int64
	// At is, for OpRefund, the At of the decision that charged the units, so
	// that they are given back where they were charged: a fixed window that has
	// ended since has nothing to give back. Zero means "just now".
	At int64
	// Shadow makes the check count and never deny: its limits have no say in the
	// verdict. It is charged if they and the enforced checks of the request admit
	// it, so that its counters are what enforcement would have made of them.
	Shadow bool
	// GiveBack has the units given back when a reservation expires that nobody has
	// settled; see [Ledger]. Without it they stay charged as estimated.
	GiveBack bool
	// OnError is what to do with the check while the store does not answer.
	OnError OnError
	// Consistency is how the check is counted, and DenyCache whether its denials
	// are remembered in this process. Both are for the layers that do so; a store
	// itself counts strictly.
	Consistency Consistency
	DenyCache   DenyCache
	// Factor is what one unit of the request's own cost costs under the rule, for
	// [Reservation.Units]. Zero means one.
	Factor int64
}

// OnError is what is done with a check while the store does not answer: by the
// layers that deal with it, for a store itself only returns the error. The zero
// OnError leaves it to the caller.
type OnError uint8

const (
	// OnErrorReturn returns the store's error to the caller.
	OnErrorReturn OnError = iota
	// OnErrorAllow lets the request in: fail open.
	OnErrorAllow
	// OnErrorDeny turns it away, with the store's error: fail closed.
	OnErrorDeny
	// OnErrorLocal counts in this process, by this node's share of the limit.
	OnErrorLocal

	onErrors // the number of them
)

var onErrorNames = [onErrors]string{"", "allow", "deny", "local"}

// String returns "allow", "deny" or "local", as it is written in rules, or "" for
// OnErrorReturn.
func (o OnError) String() string {
	if o < onErrors {
		return onErrorNames[o]
	}
	return fmt.Sprintf("on_error(%d)", uint8(o))
}

// Consistency is what is given up of the store's own answer for fewer calls to it.
type Consistency uint8

const (
	// Strict has every decision made by the store.
	Strict Consistency = iota
	// Leased has keys that are asked for often decided from units that this process
	// has taken in advance. Never too many are admitted; some may be denied early.
	Leased
	// Async has requests decided from what this process knows, and tells the store
	// afterwards. Too many may be admitted, and count against what comes next.
	Async

	consistencies // the number of them
)

var consistencyNames = [consistencies]string{"strict", "leased", "async"}

// String returns "strict", "leased" or "async", as it is written in rules.
func (c Consistency) String() string {
	if c < consistencies {
		return consistencyNames[c]
	}
	return fmt.Sprintf("consistency(%d)", uint8(c))
}

// Counts says whether a limit of the algorithm can be counted so: one that delays
// requests or counts denials needs the store's answer to each.
func (c Consistency) Counts(a Algorithm) bool {
	return c == Strict || c < consistencies && a != LeakyBucket && a != Penalty
}

// DenyCache is whether a denial is remembered in this process, so that the store is
// not asked again before the time that it named.
type DenyCache uint8

const (
	// DenyCacheDefault leaves it to the layer that remembers.
	DenyCacheDefault DenyCache = iota
	// DenyCacheOn has denials remembered.
	DenyCacheOn
	// DenyCacheOff has the store asked every time.
	DenyCacheOff

	denyCaches // the number of them
)

var denyCacheNames = [denyCaches]string{"", "on", "off"}

// String returns "on" or "off", or "" for DenyCacheDefault.
func (d DenyCache) String() string {
	if d < denyCaches {
		return denyCacheNames[d]
	}
	return fmt.Sprintf("deny_cache(%d)", uint8(d))
}

// Source says who decided. The zero Source is the store.
type Source uint8

const (
	// SourceStore is the store itself.
	SourceStore Source = iota
	// SourceCache is a denial of the store that was remembered in this process.
	SourceCache
	// SourceLease is units that this process has taken in advance.
	SourceLease
	// SourceLocal is this process, by its share of the limit: the store does not
	// answer, or the rule counts asynchronously.
	SourceLocal
	// SourceOpen is nobody: the store does not answer, and the rule lets requests
	// in without it.
	SourceOpen

	sources // the number of sources
)

var sourceNames = [sources]string{"store", "deny_cache", "lease", "local", "open"}

// String returns "store", "deny_cache", "lease", "local" or "open".
func (s Source) String() string {
	if s < sources {
		return sourceNames[s]
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// Units is the cost with its default applied.
func (c *Check) Units() int64 {
	if c.Cost == 0 {
		return 1
	}
	return c.Cost
}

// Decision is the outcome for one limit. The zero Decision denies.
type Decision struct {
	// Rule and Limit are what decided. Both are shared and immutable.
	Rule  *Rule
	Limit *Limit
	// Check is the place of the check within the request, from 0.
	Check int
	// Allowed says whether this limit admits the request. A limit that would
	// admit it is not charged when another one denies.
	Allowed bool
	// Shadow is that of the check: the decision has no say in the verdict.
	Shadow bool
	// Source is who decided.
	Source Source
	// Remaining is how many units are left after this decision: never negative.
	Remaining int64
	// RetryAfter is the time until this cost fits, if nothing else comes: zero
	// when it fits now, Never when it exceeds the limit's capacity. One
	// microsecond earlier it would not fit. (Where a limit was lowered so far that
	// it takes longer, MaxRefill and a microsecond stand for the time, and for that
	// of ResetAfter.)
	RetryAfter time.Duration
	// ResetAfter is the time until the limit is fully free again, if nothing
	// else comes.
	ResetAfter time.Duration
	// Delay is how long an admitted request is to be held so that units leave
	// at the limit's rate. Only leaky_bucket sets it.
	Delay time.Duration
	// At is the store's clock at the decision, in microseconds since the Unix
	// epoch.
	At int64
}

// Store keeps counters. Implementations are safe for concurrent use.
type Store interface {
	// Take carries out op for all checks or for none: it reads its clock once,
	// decides every limit of every check, and charges only if each that is not a
	// shadow admits; a shadow check is charged then if its own limits admit it. It
	// appends a Decision for each limit to dst, in the order of the checks and
	// of their rules' limits, and returns the extended slice. OpReset appends
	// nothing.
	//
	// An error means that there is no decision. It is an [*InvalidError] if the
	// checks are at fault, or wraps [ErrUnavailable] if the store is.
	Take(ctx context.Context, op Op, checks []Check, dst []Decision) ([]Decision, error)
}

// SingleStore is what a [Store] may offer besides: its Take for the most common
// request. A [Limiter] of one rule with one limit uses it.
type SingleStore interface {
	Store
	// TakeSingle is Take with OpTake for one check, whose rule has one limit. A
	// cost of zero means one.
	TakeSingle(ctx context.Context, rule *Rule, key string, cost int64) (Decision, error)
}

// Validate returns an [*InvalidError] if no store could take the checks. Stores
// call it first, so that all of them refuse the same input with the same words.
func Validate(op Op, checks []Check) error {
	// The usual request is valid: nothing is formatted for it.
	if op >= ops || len(checks) == 0 || len(checks) > MaxChecks {
		return validate(op, checks)
	}
	for i := range checks {
		if !checks[i].valid() || repeats(checks, i) >= 0 {
			return validate(op, checks)
		}
	}
	return nil
}

// repeats returns the first check with the counters of check i, or -1.
func repeats(checks []Check, i int) int {
	c := &checks[i]
	for j := range checks[:i] {
		if o := &checks[j]; o.Rule != nil && o.Key == c.Key && o.Rule.name == c.Rule.name {
			return j
		}
	}
	return -1
}

// Validate returns an [*InvalidError] if no store could take the check.
func (c *Check) Validate() error {
	if c.valid() {
		return nil
	}
	return validate(OpTake, []Check{*c})
}

func (c *Check) valid() bool {
	return c.Rule != nil && len(c.Rule.limits) != 0 && len(c.Key) <= MaxKey && c.Cost >= 0 && c.Cost <= MaxCount
}

func validate(op Op, checks []Check) error {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if op >= ops {
		bad("operation %d is unknown", op)
	}
	if len(checks) == 0 || len(checks) > MaxChecks {
		bad("there are %d checks, must be 1 to %d", len(checks), MaxChecks)
	}
	for i := range checks {
		c := &checks[i]
		if i >= MaxChecks {
			break
		}
		name := ""
		if c.Rule == nil || len(c.Rule.limits) == 0 {
			bad("check %d has no rule; make one with NewRule", i+1)
		} else {
			name = " (" + c.Rule.name + ")"
		}
		if len(c.Key) > MaxKey {
			bad("check %d%s: the key has %d bytes, must have at most %d", i+1, name, len(c.Key), MaxKey)
		}
		if c.Cost < 0 || c.Cost > MaxCount {
			bad("check %d%s: the cost is %d, must be 1 to %d", i+1, name, c.Cost, MaxCount)
		}
		if !c.valid() {
			continue
		}
		if j := repeats(checks, i); j >= 0 {
			bad("check %d repeats the rule %q and the key of check %d; add up their costs instead", i+1, c.Rule.name, j+1)
		}
	}
	if problems == nil {
		return nil
	}
	return &InvalidError{Subject: "request", Problems: problems}
}
