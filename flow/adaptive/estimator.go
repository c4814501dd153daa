package adaptive

import (
	"time"

	"github.com/headgate/headgate/flow"
)

// Sample describes one piece of work that has ended.
type Sample struct {
	// Start is when the work began, by a clock that only moves forward and has an arbitrary zero.
	// The work ended at Start + RTT.
	Start time.Duration
	// RTT is how long the work took.
	RTT time.Duration
	// InFlight is how many units were in use when the work began, including its own.
	InFlight int64
	// Outcome is how the work ended. Only durations with the outcome Success say how long
	// work takes; with Overload and Canceled, it takes at least as long.
	Outcome flow.Outcome
}

// Estimator finds how many units may be in use. It is a function of its samples, in the order in
// which the work ended: it reads no clock, and two estimators with the same configuration and the
// same samples have the same limit. It is not safe for concurrent use; a [Gate] calls it under a
// lock.
type Estimator interface {
	// Update adds a sample and returns the limit from now on, at least 1.
	Update(s Sample) int64
	// Limit returns the present limit.
	Limit() int64
}
