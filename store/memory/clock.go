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
		c.offset.Store(now.Round(0).UnixNano() - int64(now.Sub(c.base)))
	}
	return (c.offset.Load() + since) / 1000
}
