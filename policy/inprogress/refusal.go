package inprogress

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
)

// Refusal says that a request gets no permit. The request holds nothing and was charged nothing.
type Refusal struct { //nolint:errname // it is an answer first, and an error besides
	// Bound is the bound that has no permit left.
	Bound policy.Bound
	// Rejection has the gate's reason and its numbers.
	Rejection *flow.Rejection
}

// Error names the rule and the numbers. It does not include the key, which may belong to a client.
func (r *Refusal) Error() string {
	return fmt.Sprintf("rule %q: %s", r.Bound.Rule.Name, r.Rejection.Error())
}

// Unwrap returns the rejection.
func (r *Refusal) Unwrap() error { return r.Rejection }

// unspecific are entries that say what a request asks for, and not who sends it.
var unspecific = []string{"route", "path", "method", "host", "service"}

// Own reports whether the bound is for one client: its rule counts by an entry that identifies the
// client. Then the client should send less at a time. Otherwise other clients may have taken the
// permits, and the service has no room.
func (r *Refusal) Own() bool {
	return slices.ContainsFunc(r.Bound.Rule.Per, func(p policy.Part) bool {
		return !slices.Contains(unspecific, p.Entry)
	})
}

// RetryAfter is an estimate of when to try again. It is a second if nothing is known, and
// headgate.Never if the request costs more than its limit.
func (r *Refusal) RetryAfter() time.Duration {
	if r.Rejection.RetryAfter == 0 {
		return time.Second
	}
	return r.Rejection.RetryAfter
}

// Detail is a sentence for the client that says how much is in progress.
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
