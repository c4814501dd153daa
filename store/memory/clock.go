package memory

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// clock gives the time: what the wall clock said when the clock was made, and the monotonic clock
// since then. So it never steps, whatever happens to the wall clock. Only the windows of a calendar
// need to follow that, and what callers are told; see wall.
type clock struct {
	base  time.Time        // monotonic origin
	start headgate.Instant // wall clock at base
	wall  atomic.Pointer[wall]
	next  atomic.Int64 // the instant at which to read the wall clock again
}

// wall says how far the wall clock was ahead of a clock, and when. It is immutable. The store
// decides by the clock, but what it tells its callers, and what they tell it, is the time of the
// wall clock.
type wall struct {
	offset          // that of now
	before []offset // the last ones before it, oldest first
}

// offset is how far the wall clock was ahead from a time of the clock on.
type offset struct {
	since headgate.Instant // by the clock; 0 if nobody knows
	ahead algorithm.Micros
}

// maxBefore is how many earlier offsets of the wall clock are remembered.
const maxBefore = 7

// stepped returns what follows from w when the wall clock is set at a time of the clock.
func (w *wall) stepped(since headgate.Instant, ahead algorithm.Micros) *wall {
	before := append(slices.Clone(w.before), w.offset)
	if forget := len(before) - maxBefore; forget > 0 {
		before = before[forget:]
		before[0].since = 0
	}
	return &wall{offset{since, ahead}, before}
}

// shown returns what the wall clock says at a time of the clock that is about now.
func (w *wall) shown(now headgate.Instant) headgate.Instant {
	return now + headgate.Instant(w.ahead)
}

// read is the inverse of shown. It returns the time of the clock at which the wall clock said t.
// If the wall clock was set back, it may have said t twice. Then the earlier time counts: more has
// been refilled since, so a refund gives back less. A time that the wall clock has skipped is that
// of the step. A time of 0 is not known, and stays.
func (w *wall) read(t headgate.Instant) headgate.Instant {
	if t == 0 {
		return 0
	}
	skipped := false // the offsets before ended before t
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

// apart is how much time may pass while both clocks are read, in µs.
const apart = 500

func newClock() *clock {
	c := &clock{base: time.Now()}
	c.start = headgate.Instant(c.base.UnixMicro())
	c.next.Store(int64(c.start + resync))
	c.wall.Store(&wall{offset: offset{since: c.start}})
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
	if ahead, was := algorithm.Micros(said-mono), old.ahead; max(ahead-was, was-ahead) >= apart {
		c.wall.Store(old.stepped(before, ahead))
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

// onTime returns now as the limit's windows see it.
func (sh *shard) onTime(l *headgate.Limit, now headgate.Instant) headgate.Instant {
	if onCalendar(l) {
		return sh.wall.shown(now)
	}
	return now
}

// told returns a time that a caller has named as the limit's windows see it.
func (sh *shard) told(l *headgate.Limit, t headgate.Instant) headgate.Instant {
	if onCalendar(l) {
		return t
	}
	return sh.wall.read(t)
}
