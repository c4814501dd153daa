package flow

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// ErrShed matches every [*Rejection], except that of a rate, which is a [headgate.ErrDenied].
var ErrShed = errors.New("flow: shed")

// Reason says why a gate refused.
type Reason uint8

const (
	// ReasonBusy means that all permits are in use and waiting was not possible.
	ReasonBusy Reason = iota
	// ReasonQueueFull means that the queue is full, and no waiting request gives way to this one.
	ReasonQueueFull
	// ReasonDisplaced means that the request waited in a full queue, and gave way to a request that
	// matters more or that comes from a tenant with fewer waiting requests.
	ReasonDisplaced
	// ReasonWaited means that the request waited for as long as the gate allows.
	ReasonWaited
	// ReasonLate means that the request could not begin early enough to meet its deadline.
	ReasonLate
	// ReasonPressure means that the process or the machine is short of a resource, such as
	// processor time or memory.
	ReasonPressure
	// ReasonTooLarge means that the cost exceeds the limit, so that it can never fit.
	ReasonTooLarge
	// ReasonKeys means that the gate has the maximum number of keys in use.
	ReasonKeys
	// ReasonRate means that a rate denied. The error wraps a [*headgate.DeniedError].
	ReasonRate

	reasons // the number of reasons
)

// Reasons is the number of reasons.
const Reasons = int(reasons)

var reasonNames = [reasons]string{
	"busy", "queue_full", "displaced", "waited", "late", "pressure", "too_large", "keys", "rate",
}

var reasonTexts = [reasons]string{
	"no permit is free", "the queue is full", "displaced from the full queue", "waited too long",
	"cannot begin before the deadline", "short of resources", "the cost exceeds the limit",
	"too many keys are in use", "denied by rate",
}

// String returns the name of the reason, such as "busy" or "queue_full".
func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Rejection is the refusal of a gate. It is immutable; a gate may return the same
// Rejection to several callers.
type Rejection struct { //nolint:errname // it is an answer of a gate first, and an error besides
	// Gate is the name of the gate that refused.
	Gate string
	// Reason is why the gate refused.
	Reason Reason
	// RetryAfter is how long to wait at least before trying again. It is an estimate, except for
	// [ReasonRate], where it is exact. Zero means that the gate does not know, and headgate.Never
	// that the request can never be admitted.
	RetryAfter time.Duration
	// Retry says whether trying again makes sense. It is false if each retry adds to the overload,
	// if the deadline leaves no time, or if the request can never be admitted. Callers further up
	// should not retry then either.
	Retry bool
	// Limit and InUse are the numbers at the time of the refusal, in units of cost, and Waiting is
	// the number of requests that waited. They are zero if the gate has no such number.
	Limit, InUse, Waiting int64
	// Cause is the error behind the refusal, or nil. For ReasonRate it is the
	// [*headgate.DeniedError] with the decision.
	Cause error
}

// Error names the gate, the reason, the numbers and the time to wait.
func (r *Rejection) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "flow: gate %q: ", r.Gate)
	if r.Reason < reasons {
		b.WriteString(reasonTexts[r.Reason])
	} else {
		b.WriteString(r.Reason.String())
	}
	if r.Limit != 0 {
		fmt.Fprintf(&b, " (%d of %d in use, %d waiting)", r.InUse, r.Limit, r.Waiting)
	}
	switch {
	case r.RetryAfter == headgate.Never:
	case r.RetryAfter > 0:
		fmt.Fprintf(&b, "; fits in about %v", r.RetryAfter.Round(time.Millisecond))
	}
	if !r.Retry {
		b.WriteString("; do not retry")
	}
	return b.String()
}

// Is makes errors.Is(err, ErrShed) true, except for [ReasonRate].
func (r *Rejection) Is(target error) bool { return target == ErrShed && r.Reason != ReasonRate }

// Unwrap returns the Cause.
func (r *Rejection) Unwrap() error { return r.Cause }

// Stats is a snapshot of a gate.
type Stats struct {
	// Limit is how many units may be in use, for each key if the gate has keys.
	Limit int64
	// InUse is how many units are in use, and Keys is the number of keys in use.
	InUse, Keys int64
	// Waiting is how many requests wait.
	Waiting int64
	// Admitted, Rejected and Done count since the gate was made. Rejected is
	// indexed by [Reason], Done by [Outcome].
	Admitted uint64
	Rejected [Reasons]uint64
	Done     [Outcomes]uint64
}
