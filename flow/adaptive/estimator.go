package adaptive

import (
	"time"

	"github.com/headgate/headgate/flow"
)

// Sample is one piece of work that has ended.
type Sample struct {
	// Start is when it began, on a clock that only moves forward and whose zero is
	// anywhere. Start plus RTT is when it ended.
	Start time.Duration
	// RTT is how long it took.
	RTT time.Duration
	// InFlight is how many units were in use when it began, its own included.
	InFlight int64
	// Outcome is how it ended. The durations of Overload and Ignore say nothing about
	// how long work takes.
	Outcome flow.Outcome
}

// Estimator finds out how many units may be in use. It is a function of the samples
// it is given, in the order in which they ended: it reads no clock, and two estimators
// that are made alike and see the same samples have the same limit. It is not safe for
// concurrent use; a [Gate] calls it under a lock.
type Estimator interface {
	// Update takes a sample in and returns the limit from now on, at least 1.
	Update(s Sample) int64
	// Limit is the limit now.
	Limit() int64
}
