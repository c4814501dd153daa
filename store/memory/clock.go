package memory

import (
	"sync/atomic"
	"time"
)

// clock gives the time in microseconds since the Unix epoch. Reading only the monotonic clock costs
// about half of time.Now. So the wall clock is read once in resync, and its steps are noticed up to
// resync later.
type clock struct {
	base   time.Time    // monotonic origin
	offset atomic.Int64 // wall clock at base, in ns
	next   atomic.Int64 // when to read the wall clock again, in ns since base
}

const resync = int64(time.Second)

// apart is how much time may pass while both clocks are read, in ns. It is less than overtaken, so
// that time does not step back by it.
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

// follow adopts a reading of the wall clock that was taken together with mono, a reading of the
// monotonic clock. It does so only if the readings of the monotonic clock before and after are less
// than apart from each other, and otherwise returns false. A goroutine that was stopped between
// reading the two clocks has an old reading of the wall clock. Adopting it would move the time back
// and, at the next reading, ahead again, which would refill each counter that was used in between.
func (c *clock) follow(before, mono, after, wall int64) bool {
	if after-before >= apart {
		return false
	}
	c.offset.Store(wall - mono)
	return true
}
