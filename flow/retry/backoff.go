package retry

import (
	"math/rand/v2"
	"time"
)

// Backoff determines how long to wait between tries. The wait is a random part of a bound that
// doubles with each try ("full jitter").
type Backoff struct {
	// Base bounds the wait before the first retry, and Max bounds all waits. Both must be positive.
	Base, Max time.Duration
}

// A wait exceeds the time that was asked for by at most 1/jitterPart of that time.
const jitterPart = 10

// Wait returns how long to wait after the given number of tries, 1 or more. If the other side has
// asked for a wait, the result is at least that, and up to a tenth more if that is longer than the
// backoff, so that not all clients come back at the same moment.
func (b Backoff) Wait(tries int, asked time.Duration) time.Duration {
	most := b.Max
	// After 20 doublings, any practical bound has been reached.
	if doubled := b.Base << min(tries-1, 20); doubled > 0 && doubled < most {
		most = doubled
	}
	wait := rand.N(most + 1)
	if asked > 0 {
		wait = max(wait, asked+rand.N(asked/jitterPart+1))
	}
	return wait
}
