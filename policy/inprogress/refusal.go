package inprogress

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
)

// Refusal says that a request gets no permit. Nothing is held or charged for it.
type Refusal struct { //nolint:errname // it is an answer first, and an error besides
	// Bound is the bound that has no permit left.
	Bound policy.Bound
	// Rejection has the reason and the numbers.
	Rejection *flow.Rejection
}

// Error names the rule and the numbers. The key is not in it, since it may be a client's.
func (r *Refusal) Error() string {
	return fmt.Sprintf("rule %q: %s", r.Bound.Rule.Name, r.Rejection.Error())
}

// Unwrap returns the rejection.
func (r *Refusal) Unwrap() error { return r.Rejection }

// unspecific are entries that say what a request is for, and not whom it comes from.
var unspecific = []string{"route", "path", "method", "host", "service"}

// Own reports whether the bound is the client's own: its rule counts by something that
// says who the client is. Then it is for the client to send less at a time. Otherwise
// others may have taken all permits, and the service has no room.
func (r *Refusal) Own() bool {
	return slices.ContainsFunc(r.Bound.Rule.Per, func(p policy.Part) bool {
		return !slices.Contains(unspecific, p.Entry)
	})
}

// RetryAfter is when to come again: an estimate, of a second where nothing is known, and
// headgate.Never if the request costs more than its limit.
func (r *Refusal) RetryAfter() time.Duration {
	if r.Rejection.RetryAfter == 0 {
		return time.Second
	}
	return r.Rejection.RetryAfter
}

// Detail says in a sentence for the client how much is in progress.
func (r *Refusal) Detail() string {
	limit := r.Rejection.Limit
	switch {
	case r.Rejection.Reason == flow.ReasonTooLarge:
		return fmt.Sprintf("The request takes %d of what may be in progress under %q, which is %d.", r.Bound.Units, r.Bound.Rule.Name, limit)
	case r.Rejection.Reason == flow.ReasonKeys:
		return "Too much is in progress."
	case limit == 1:
		return fmt.Sprintf("One request is in progress under %q, and no more may be.", r.Bound.Rule.Name)
	}
	return fmt.Sprintf("%d of %d requests are in progress under %q.", r.Rejection.InUse, limit, r.Bound.Rule.Name)
}
