package algorithm

import (
	"math"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/muldiv"
)

// The sliding counter estimates the units in a sliding window. It adds up all units of the current
// fixed window, and those units of the window before that the sliding window still covers, on the
// assumption that they came evenly. That share is rounded up, so that the estimate is an integer
// and the moment when a cost fits is exact.

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
		// The sum is bounded, so that it does not overflow after many steps of the clock.
		return State{Stamp: aligned(now, period), Used: max(s.Used, min(s.Used+s.Extra, MaxUsed(l)))}
	}
	return s
}

// weight returns how many units of the window before still count. If the clock has stepped back to
// before the current window, all of them do.
func weight(l *headgate.Limit, s State, now headgate.Instant) int64 {
	if s.Extra == 0 {
		return 0
	}
	period := l.Micros()
	left := period - max(0, int64(minus(now, s.Stamp)))
	return muldiv.Up(s.Extra, left, period, math.MaxInt64)
}

func retryCounter(l *headgate.Limit, s State, now headgate.Instant, cost int64) Micros {
	period, used, before := l.Micros(), s.Used, s.Extra
	room := l.Count - cost
	if used <= room {
		// The weight of the window before must shrink to the room that the current window leaves.
		return minus(s.Stamp, now) + Micros(period-muldiv.Down(room-used, period, before, math.MaxInt64))
	}
	// The current window must end, become the window before, and shrink to the room.
	return minus(s.Stamp, now) + Micros(2*period-muldiv.Down(room, period, used, math.MaxInt64))
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

// refundCounter gives units back to the window in which they were charged. If at is 0, it gives
// them back to the current window first, and the rest to the window before.
func refundCounter(l *headgate.Limit, s State, cost int64, at headgate.Instant) State {
	this, before := cost, int64(0)
	switch {
	case at == 0:
		this = min(cost, s.Used)
		before = cost - this
	case at < plus(s.Stamp, -periodOf(l)): // the units were charged before both windows
		this = 0
	case at < s.Stamp:
		this, before = 0, cost
	}
	s.Used -= min(this, s.Used)
	s.Extra -= min(before, s.Extra)
	if s.Used == 0 && s.Extra == 0 {
		return State{}
	}
	return s
}
