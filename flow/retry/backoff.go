package retry

import (
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait between tries: full jitter, which is a random part of a bound
// that doubles.
type Backoff struct {
	// Base is the bound of the wait before the first retry, and Max that of any. Both are
	// more than zero.
	Base, Max time.Duration
}

// jitterPart is the part of what was asked for by which a wait is longer at most.
const jitterPart = 10

// Wait returns how long to wait after so many tries, 1 or more. If the other side has asked
// for a time, it is at least that, and up to a tenth more, so that not all come back in one
// moment.
func (b Backoff) Wait(tries int, asked time.Duration) time.Duration {
	most := b.Max
	// Beyond so many doublings any base has reached any bound of practical length.
	if doubled := b.Base << min(tries-1, 20); doubled > 0 && doubled < most {
		most = doubled
	}
	wait := rand.N(most + 1)
	if asked > 0 {
		wait = max(wait, asked+rand.N(asked/jitterPart+1))
	}
	return wait
}
