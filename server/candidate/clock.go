package candidate

import "sync/atomic"

// Clock is the time of the request that is being compared, for a store that a
// single worker asks: however long a request has waited, the candidate decides as
// if it had been asked together with the policy in force.
type Clock struct{ micros atomic.Int64 }

// reordered is by how much a request may be older than the one before, in µs,
// without the machine's clock having been set back.
const reordered = 1_000_000

// Now is the time, in microseconds since 1970.
func (c *Clock) Now() int64 { return c.micros.Load() }

// set moves the clock to the time of a request. It stands still for requests that
// are out of order, and follows a clock that was set back.
func (c *Clock) set(micros int64) {
	if now := c.micros.Load(); micros > now || now-micros > reordered {
		c.micros.Store(micros)
	}
}
