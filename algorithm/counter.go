package algorithm

import (
	"math/bits"

	"github.com/headgate/headgate"
)

// The sliding counter estimates what a sliding window would hold: all of the
// current fixed window, and of the one before the share that the sliding window
// still covers, as if its units had come evenly. The share is rounded up, so
// that the estimate is an integer and the moment when a cost fits is exact.

func advanceCounter(l *headgate.Limit, s State, now headgate.Instant) State {
	period := periodOf(l)
	switch {
	case now >= plus(s.Stamp, 2*period):
		return State{}
	case now >= plus(s.Stamp, period):
		if s.Used == 0 {
			return State{}
		}
		return State{Stamp: plus(s.Stamp, period), Extra: s.Used}
	case now < plus(s.Stamp, -period):
		// The sum is cut where any limit is full, or it could outgrow the field
		// over many steps.
		all := min(int64(s.Used)+int64(s.Extra), headgate.MaxCount)
		return State{Stamp: aligned(now, period), Used: uint32(all)}
	}
	return s
}

// weight is the share of the window before that still counts. Before the window
// has begun, after the clock stepped back, that is all of it.
func weight(l *headgate.Limit, s State, now headgate.Instant) int64 {
	if s.Extra == 0 {
		return 0
	}
	period := l.Micros()
	left := period - max(0, int64(minus(now, s.Stamp)))
	return scale(int64(s.Extra), left, period, period-1)
}

func retryCounter(l *headgate.Limit, s State, now headgate.Instant, cost int64) Micros {
	period, used, before := l.Micros(), int64(s.Used), int64(s.Extra)
	room := l.Count - cost
	if used <= room {
		// The window before must shrink to what is left in this one.
		return minus(s.Stamp, now) + Micros(period-scale(room-used, period, before, 0))
	}
	// This window must end, and as the window before shrink to the room.
	return minus(s.Stamp, now) + Micros(2*period-scale(room, period, used, 0))
}

func resetCounter(l *headgate.Limit, s State, now headgate.Instant) Micros {
	switch {
	case s.Used > 0:
		return minus(s.Stamp, now) + 2*periodOf(l)
	case s.Extra > 0:
		return minus(s.Stamp, now) + periodOf(l)
	}
	return 0
}

// refundCounter gives units back to the window that they were charged in, or, if at
// is zero, to this window first and then to the one before.
func refundCounter(l *headgate.Limit, s State, cost int64, at headgate.Instant) State {
	this, before := cost, int64(0)
	switch {
	case at == 0:
		this = min(cost, int64(s.Used))
		before = cost - this
	case at < plus(s.Stamp, -periodOf(l)): // both windows came later
		this = 0
	case at < s.Stamp:
		this, before = 0, cost
	}
	s.Used -= uint32(min(this, int64(s.Used)))
	s.Extra -= uint32(min(before, int64(s.Extra)))
	if s.Used == 0 && s.Extra == 0 {
		return State{}
	}
	return s
}

// scale is (a·b + round) / c for results that fit in 63 bits.
func scale(a, b, c, round int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(round), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(c))
	return int64(q)
}
