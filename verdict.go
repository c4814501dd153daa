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
	// their rules' limits.
	Decisions []Decision
}

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
