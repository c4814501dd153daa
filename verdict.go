package headgate

import "time"

// Verdict is the outcome for a whole request.
type Verdict struct {
	// Allowed is true if every limit admits the request, shadows apart. All are
	// charged then, and none otherwise.
	Allowed bool
	// RetryAfter is the time until the whole request fits, if nothing else
	// comes: the longest of its decisions, or Never.
	RetryAfter time.Duration
	// Delay is how long an admitted request is to be held: the longest of its
	// decisions.
	Delay time.Duration
	// Decisions has one entry for each limit, in the order of the checks and of
	// their rules' limits. A denial that was remembered ([SourceCache]) has those of
	// the checks that deny, and no others.
	Decisions []Decision
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
	// microsecond earlier it would not fit. After a limit was lowered it may take
	// longer than can be told: RetryAfter and ResetAfter are MaxRefill and a
	// microsecond then.
	RetryAfter time.Duration
	// ResetAfter is the time until the limit is fully free again, if nothing
	// else comes.
	ResetAfter time.Duration
	// Delay is how long an admitted request is to be held so that units leave
	// at the limit's rate. Only leaky_bucket sets it.
	Delay time.Duration
	// At is the store's clock at the decision.
	At Instant
}

// Instant is a point in time on a store's clock: microseconds since the Unix epoch.
// Zero means that it is not known, or "now" where a point in time is asked for.
// Instants of stores with different clocks cannot be compared.
type Instant int64

// Time returns the instant as a [time.Time] in the local time zone.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)) }

// Never is the RetryAfter of a cost that can never fit.
const Never time.Duration = -1

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
	// answer.
	SourceLocal
	// SourceOpen is nobody: the store does not answer, and the rule lets requests
	// in without it.
	SourceOpen
	// SourceAsync is this process, for a rule that counts asynchronously: it tells the
	// store afterwards, and nothing is wrong.
	SourceAsync

	sources // the number of sources
)

var sourceNames = [sources]string{"store", "deny_cache", "lease", "local", "open", "async"}

// String returns "store", "deny_cache", "lease", "local", "open" or "async".
func (s Source) String() string { return nameOf(sourceNames[:], "source", uint8(s)) }

// NewVerdict sums up the decisions of one request. No decisions means that no
// rule bound it, and it is allowed.
func NewVerdict(decisions []Decision) Verdict {
	v := Verdict{Allowed: true, Decisions: decisions}
	for i := range decisions {
		d := &decisions[i]
		if d.Shadow {
			continue
		}
		if !d.Allowed {
			v.Allowed = false
		}
		if d.RetryAfter == Never || v.RetryAfter != Never && d.RetryAfter > v.RetryAfter {
			v.RetryAfter = d.RetryAfter
		}
		v.Delay = max(v.Delay, d.Delay)
	}
	if !v.Allowed {
		v.Delay = 0
	}
	return v
}

// Deciding returns the decision that settled the matter. In a denial it is the
// one with the longest RetryAfter; else the one that delays the longest or, if
// none delays, has the least remaining. Shadows do not decide. It is nil if no rule
// bound the request but as a shadow.
func (v *Verdict) Deciding() *Decision { return deciding(v.Decisions) }

func deciding(decisions []Decision) *Decision {
	var best *Decision
	for i := range decisions {
		if d := &decisions[i]; !d.Shadow && (best == nil || d.outranks(best)) && !d.idle() {
			best = d
		}
	}
	return best
}

// idle reports whether the decision is that of a penalty which does not block: it
// has no units, and a limit of the same rule has more to say.
func (d *Decision) idle() bool {
	return d.Allowed && d.Limit != nil && d.Limit.Algorithm == Penalty
}

// outranks orders decisions by how much they have to say; see Deciding. Of
// equals the first stays.
func (d *Decision) outranks(o *Decision) bool {
	switch {
	case d.Allowed != o.Allowed:
		return !d.Allowed
	case !d.Allowed:
		return o.RetryAfter != Never && (d.RetryAfter == Never || d.RetryAfter > o.RetryAfter)
	case d.Delay != o.Delay:
		return d.Delay > o.Delay
	}
	return d.Remaining < o.Remaining
}
