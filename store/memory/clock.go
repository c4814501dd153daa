package memory

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// clock gives the time: what the wall clock said when the
// clock was made, and the monotonic clock since then. So it never steps, whatever happens to the
// wall clock. Only the windows of a calendar need to follow that; see wall.
type clock struct {
	base  time.Time        // monotonic origin
	start headgate.Instant // wall clock at base
	wall  atomic.Pointer[wall]
	next  atomic.Int64 // the instant at which to read the wall clock again
}

// wall says how far the wall clock is ahead of a clock. It is immutable.
type wall struct {
	ahead algorithm.Micros
	was   algorithm.Micros // how far it was ahead before the last step
	since headgate.Instant // when the last step was noticed, by the clock
}

// at returns what the wall clock said at a time of the clock. A time of 0 is not known, and stays.
func (w *wall) at(t headgate.Instant) headgate.Instant {
	switch {
	case t == 0:
		return 0
	case t < w.since:
		return t + headgate.Instant(w.was)
	}
	return t + headgate.Instant(w.ahead)
}

// resync is how often the wall clock is read, in µs.
const resync = 1_000_000

// apart is how much time may pass while both clocks are read, in µs.
const apart = 500

func newClock() *clock {
	c := &clock{base: time.Now()}
	c.start = headgate.Instant(c.base.UnixMicro())
	c.next.Store(int64(c.start + resync))
	c.wall.Store(new(wall))
	return c
}

func (c *clock) now() headgate.Instant { return c.at(time.Since(c.base)) }

// at returns the time when so much has passed since the clock was made.
func (c *clock) at(passed time.Duration) headgate.Instant {
	return c.start + headgate.Instant(passed)/1000
}

// wallAt returns how far the wall clock is ahead at now, a reading of the clock. Steps of the wall
// clock are noticed up to resync later.
func (c *clock) wallAt(now headgate.Instant) *wall {
	if next := c.next.Load(); int64(now) >= next && c.next.CompareAndSwap(next, int64(now)+resync) {
		before := c.now()
		said := time.Now()
		if !c.follow(before, c.at(said.Sub(c.base)), c.now(), headgate.Instant(said.Round(0).UnixMicro())) {
			c.next.Store(int64(now)) // for the next caller to try again
		}
	}
	return c.wall.Load()
}

// follow adopts a reading of the wall clock that was taken together with mono, a reading of the
// clock. It does so only if the readings of the clock before and after are less than apart from
// each other, and otherwise returns false. A goroutine that was stopped between reading the two
// clocks has an old reading of the wall clock. Differences below apart are no steps.
func (c *clock) follow(before, mono, after, said headgate.Instant) bool {
	if after-before >= apart {
		return false
	}
	old := c.wall.Load()
	if ahead := algorithm.Micros(said - mono); max(ahead-old.ahead, old.ahead-ahead) >= apart {
		c.wall.Store(&wall{ahead: ahead, was: old.ahead, since: before})
	}
	return true
}

// onCalendar reports whether the windows of a limit begin at times of the wall clock.
func onCalendar(l *headgate.Limit) bool {
	return l.Algorithm == headgate.FixedWindow && l.Align != headgate.AlignFirst
}

// read reads the store's own clock. Callers read it before they lock a shard, because that takes as
// long as the decision; see timeIn.
func (s *Store) read() headgate.Instant {
	switch {
	case s.clock == nil:
		return s.own.now()
	case s.budget.steady:
		return headgate.Instant(s.clock())
	}
	return 0
}

// timeIn returns the time of a decision in a locked shard. now is what read returned. In between,
// another caller may have used the shard with a later reading. That reading then counts, because
// time must not seem to step back.
func (s *Store) timeIn(now headgate.Instant, sh *shard) headgate.Instant {
	if !s.budget.steady {
		return headgate.Instant(s.clock())
	}
	if s.clock == nil {
		sh.wall = s.own.wallAt(now)
	}
	sh.last, sh.outrun = max(sh.last, now), false
	return sh.last
}

// clockNow reads the store's clock. It is for callers that have not locked a shard; see timeIn.
func (s *Store) clockNow() headgate.Instant {
	if s.clock != nil {
		return headgate.Instant(s.clock())
	}
	return s.own.now()
}

// onTime returns now as the limit's windows see it, and by how much that is ahead of now.
func (sh *shard) onTime(l *headgate.Limit, now headgate.Instant) (at headgate.Instant, ahead algorithm.Micros) {
	if onCalendar(l) {
		return now + headgate.Instant(sh.wall.ahead), sh.wall.ahead
	}
	return now, 0
}

// wallAt returns a time at which units were charged as the limit's windows see it.
func (sh *shard) wallAt(l *headgate.Limit, t headgate.Instant) headgate.Instant {
	if onCalendar(l) {
		return sh.wall.at(t)
	}
	return t
}
