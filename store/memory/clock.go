package memory

import (
	"sync/atomic"
	"time"
)

// clock tells microseconds since the Unix epoch. Reading the monotonic clock
// alone costs about half of time.Now, so the wall clock is only asked once in a
// while: its steps are followed that much later.
type clock struct {
	base   time.Time    // monotonic origin
	offset atomic.Int64 // wall clock at base, in ns
	next   atomic.Int64 // when to ask the wall clock again, in ns since base
}

const resync = int64(time.Second)

// apart is how far apart readings of the two clocks may be that are taken together, in ns:
// less than overtaken, so that time does not go back by it.
const apart = overtaken / 2 * int64(time.Microsecond)

func newClock() *clock {
	c := &clock{base: time.Now()}
	c.offset.Store(c.base.UnixNano())
	c.next.Store(resync)
	return c
}

func (c *clock) now() int64 {
	since := int64(time.Since(c.base))
	if next := c.next.Load(); since >= next && c.next.CompareAndSwap(next, since+resync) {
		now := time.Now()
		if !c.follow(since, int64(now.Sub(c.base)), int64(time.Since(c.base)), now.Round(0).UnixNano()) {
			c.next.Store(since) // for the next caller to try again
		}
	}
	return (c.offset.Load() + since) / 1000
}

// follow takes the wall clock's reading that was taken together with one of the monotonic
// clock, if it was taken between two others that are hardly apart: who was stopped, or had to
// wait for a processor, between the readings of the two clocks has an old one of the wall
// clock. The time would go back by so much, and ahead again at the next look, and each counter
// that was used meanwhile would be refilled.
func (c *clock) follow(before, mono, after, wall int64) bool {
	if after-before >= apart {
		return false
	}
	c.offset.Store(wall - mono)
	return true
}
