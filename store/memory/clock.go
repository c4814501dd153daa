package memory

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// clock is the store's own clock. It starts at the time of the wall clock and then follows the
// monotonic clock. So it never steps, even if the wall clock is set. Only calendar windows, and the
// times that callers see, have to follow the wall clock; see wall.
type clock struct {
	base  time.Time        // when the clock was made
	start headgate.Instant // what the wall clock said at base
	wall  atomic.Pointer[wall]
	next  atomic.Int64 // the instant at which to read the wall clock again
}

// wall says how far the wall clock is ahead of the store's own clock, now and in the past. It is
// immutable. The store decides by its own clock, but exchanges times of the wall clock with its
// callers.
type wall struct {
	offset          // the present offset
	before []offset // the offsets before the present one, oldest first
}

// offset says that the wall clock is ahead of the store's clock by a constant time, beginning at
// since.
type offset struct {
	since headgate.Instant // by the store's clock; 0 if the beginning is not known
	ahead algorithm.Micros
}

// maxBefore is how many earlier offsets of the wall clock are remembered.
const maxBefore = 7

// stepped returns the wall after the wall clock was set, at the time since of the store's clock.
func (w *wall) stepped(since headgate.Instant, ahead algorithm.Micros) *wall {
	before := append(slices.Clone(w.before), w.offset)
	if forget := len(before) - maxBefore; forget > 0 {
		before = before[forget:]
		before[0].since = 0
	}
	return &wall{offset{since, ahead}, before}
}

// shown converts a time of the store's clock, which must be close to now, to one of the wall clock.
func (w *wall) shown(now headgate.Instant) headgate.Instant {
	return now + headgate.Instant(w.ahead)
}

// on converts now, a time of the store's clock, to the clock by which the limit's windows begin.
func (w *wall) on(l *headgate.Limit, now headgate.Instant) headgate.Instant {
	if onCalendar(l) {
		return w.shown(now)
	}
	return now
}

// read converts a time of the wall clock to one of the store's clock; it is the inverse of shown.
// If the wall clock was set back, it may have shown t twice. Then the earlier of the two times
// counts: more units have been refilled since, so a refund gives back less. If the wall clock
// skipped t, the result is the time of that step. A t of 0 means that the time is not known, and
// the result is 0.
func (w *wall) read(t headgate.Instant) headgate.Instant {
	if t == 0 {
		return 0
	}
	skipped := false // an earlier offset ended before the wall clock reached t
	for i, o := range w.before {
		end := w.since
		if i+1 < len(w.before) {
			end = w.before[i+1].since
		}
		switch at := t - headgate.Instant(o.ahead); {
		case at >= end:
			skipped = true
		case at >= o.since || skipped:
			return max(at, o.since)
		}
	}
	at := t - headgate.Instant(w.ahead)
	if skipped {
		at = max(at, w.since)
	}
	return at
}

// resync is how often the wall clock is read, in µs.
const resync = 1_000_000

// apart is the longest time that may pass between the readings of the two clocks, in µs. It is also
// the smallest difference that counts as a step of the wall clock.
const apart = 500

func newClock() *clock {
	c := &clock{base: time.Now()}
	c.start = headgate.Instant(c.base.UnixMicro())
	c.next.Store(int64(c.start + resync))
	c.wall.Store(&wall{offset: offset{since: c.start}})
	return c
}

func (c *clock) now() headgate.Instant { return c.at(time.Since(c.base)) }

// at returns the time of the clock when the given duration has passed since the clock was made.
func (c *clock) at(passed time.Duration) headgate.Instant {
	return c.start + headgate.Instant(passed)/1000
}

// wallAt returns the relation of the wall clock to the clock at now, a reading of the clock. A step
// of the wall clock may be noticed up to resync late.
func (c *clock) wallAt(now headgate.Instant) *wall {
	if next := c.next.Load(); int64(now) >= next && c.next.CompareAndSwap(next, int64(now)+resync) {
		before := c.now()
		said := time.Now()
		if !c.follow(before, c.at(said.Sub(c.base)), c.now(), headgate.Instant(said.Round(0).UnixMicro())) {
			c.next.Store(int64(now)) // so that the next caller tries again
		}
	}
	return c.wall.Load()
}

// follow adopts said, a reading of the wall clock that was taken together with mono, a reading of
// the clock. before and after are readings of the clock around it. If they are apart or more from
// each other, follow does nothing and returns false, because the goroutine may have been stopped
// between the two readings. A difference below apart does not count as a step.
func (c *clock) follow(before, mono, after, said headgate.Instant) bool {
	if after-before >= apart {
		return false
	}
	old := c.wall.Load()
	if ahead, was := algorithm.Micros(said-mono), old.ahead; max(ahead-was, was-ahead) >= apart {
		c.wall.Store(old.stepped(before, ahead))
	}
	return true
}

// onCalendar reports whether the windows of a limit begin at times of the wall clock.
func onCalendar(l *headgate.Limit) bool {
	return l.Algorithm == headgate.FixedWindow && l.Align != headgate.AlignFirst
}

// read reads the clock of a store whose clock never steps back. Callers read it before they lock a
// shard, because that takes as long as the decision; see timeIn.
func (s *Store) read() headgate.Instant {
	switch {
	case s.clock == nil:
		return s.own.now()
	case s.steady:
		return headgate.Instant(s.clock())
	}
	return 0
}

// timeIn returns the time of a decision in a locked shard. now is what read returned. In between,
// another caller may have used the shard with a later reading. That reading then counts, because
// time must not seem to step back.
func (s *Store) timeIn(now headgate.Instant, sh *shard) headgate.Instant {
	if !s.steady {
		return headgate.Instant(s.clock())
	}
	sh.wall = s.wallAt(now)
	sh.last = max(sh.last, now)
	return sh.last
}

// clockNow reads the store's clock. It is for callers that have not locked a shard; see timeIn.
func (s *Store) clockNow() headgate.Instant {
	if s.clock != nil {
		return headgate.Instant(s.clock())
	}
	return s.own.now()
}

// wallAt returns the relation of the wall clock to the store's clock at now. A clock that the store
// was given is a wall clock itself.
func (s *Store) wallAt(now headgate.Instant) *wall {
	if s.clock != nil {
		return s.own.wall.Load()
	}
	return s.own.wallAt(now)
}
