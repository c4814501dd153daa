package memory

import (
	"sync/atomic"
	"time"
)

// ManualClock is a clock for tests. It stands still until it is advanced, so a test can ask what
// happens a microsecond before a limit admits again, and at that time. It is safe for concurrent use.
//
//	clock := memory.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
//	limiter := headgate.New(memory.New(memory.Clock(clock.Micros)), rule)
//	…
//	clock.Advance(15 * time.Minute)
//
// In a bubble of testing/synctest no such clock is needed: a store without one follows time.Sleep.
type ManualClock struct{ micros atomic.Int64 }

// NewManualClock returns a clock that shows the given time, in whole microseconds.
func NewManualClock(start time.Time) *ManualClock {
	c := new(ManualClock)
	c.micros.Store(start.UnixMicro())
	return c
}

// Advance moves the clock forward by d, in whole microseconds, and returns the time that it shows
// then. It panics if d is negative: counters rely on time not going back.
func (c *ManualClock) Advance(d time.Duration) time.Time {
	if d < 0 {
		panic("memory: a manual clock was advanced by " + d.String() + "; it only goes forward")
	}
	return time.UnixMicro(c.micros.Add(d.Microseconds())).UTC()
}

// Now returns the time that the clock shows, in UTC.
func (c *ManualClock) Now() time.Time { return time.UnixMicro(c.Micros()).UTC() }

// Micros returns the time that the clock shows, in microseconds since the Unix epoch. It is the
// function that [Clock] wants.
func (c *ManualClock) Micros() int64 { return c.micros.Load() }
