package algorithm

import (
	"time"

	"github.com/headgate/headgate"
)

// State is the counter of one limit. In the zero State, nothing is in use. The meaning of its
// fields depends on the algorithm:
//
//	                Stamp                       Used                Extra
//	token_bucket    when exactly Used units     units in use then   fraction of Stamp, in
//	leaky_bucket    were in use, in µs                              1/num µs, rounded down;
//	                                                            see Plain for what is stored
//	fixed_window    when the window ends        units in it         -
//	sliding_counter when the window began       units in it         units in the window before
//	penalty         when the block or, before   denials counted     blocks so far, and the
//	                it, the period ends                             longest that there can be
//
// What a store keeps is a State, too, in other forms; see [Counter.Slots]. There, Used and Extra have
// 32 bits, and Stamp has 55.
type State struct {
	Stamp headgate.Instant
	Used  int64
	Extra int64
}

// IsZero reports whether the counter is fully free.
func (s State) IsZero() bool { return s == State{} }

// Advance brings the state up to now. It removes the units that have been refilled, and closes
// windows that have ended.
func Advance(l *headgate.Limit, s State, now headgate.Instant) State {
	if s.IsZero() {
		return s
	}
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		return advanceBucket(rateOf(l), s, now)
	case headgate.FixedWindow:
		return advanceFixed(l, s, now)
	case headgate.SlidingCounter:
		return advanceCounter(l, s, now)
	case headgate.Penalty:
		return advancePenalty(l, s, now)
	}
	return s
}

// Moved reports whether Advance has moved the stamp of s back, because the clock has stepped back.
// The caller must then store the advanced state, whatever is decided. Otherwise the counter would
// not change until the clock has caught up.
func Moved(s, advanced State, now headgate.Instant) bool {
	return !advanced.IsZero() && (advanced.Stamp < s.Stamp || s.Stamp == now && advanced.Extra < s.Extra)
}

// Reached returns a lower bound for the time at which the state was last advanced or changed. The
// bound may be too early by the time of one unit's refill, or by a period. It is 0 for a state that
// is fully free, and for the state of a penalty, which does not tell.
func Reached(l *headgate.Limit, s State) headgate.Instant {
	if s.IsZero() {
		return 0
	}
	switch l.Algorithm {
	case headgate.FixedWindow:
		return windowStart(l, s.Stamp)
	case headgate.Penalty:
		return 0
	}
	return s.Stamp
}

// Fits reports whether the limit admits cost at now. The state must have been
// advanced to now.
func Fits(l *headgate.Limit, s State, now headgate.Instant, cost int64) bool {
	used := s.Used
	switch l.Algorithm {
	case headgate.SlidingCounter:
		used += weight(l, s, now)
	case headgate.Penalty:
		return !blocked(l, s, now)
	}
	return used+cost <= l.Capacity()
}

// Charge adds cost to a state that was advanced to now, whether it fits or not. It does not count
// units beyond [MaxUsed].
func Charge(l *headgate.Limit, s State, now headgate.Instant, cost int64) State {
	if l.Algorithm == headgate.Penalty {
		return s
	}
	if cost = min(cost, MaxUsed(l)-s.Used); cost <= 0 {
		return s
	}
	if s.IsZero() {
		switch l.Algorithm {
		case headgate.FixedWindow:
			_, s.Stamp = Window(l, now)
		case headgate.SlidingCounter:
			s.Stamp = aligned(now, periodOf(l))
		default:
			s.Stamp = now
		}
	}
	s.Used += cost
	return s
}

// Refund takes back cost units that were charged at the time at, or the newest units if at is 0.
// The state must have been advanced to now. Refund never gives back more than is in use, and gives
// nothing back to a window in which the units were not charged.
//
// Units that a bucket has refilled since at are free already. Refund does not give them back again,
// exact to a fraction of a unit. How many they are depends on used, the number of units in use
// right after the charge. Units that may have been given back since must not be counted in used; it
// is always safe to pass cost. If used is 0, the number is not known, and the bucket is taken to
// have been full.
func Refund(l *headgate.Limit, s State, now headgate.Instant, cost int64, at headgate.Instant, used int64) State {
	if s.IsZero() || cost <= 0 {
		return s
	}
	switch l.Algorithm {
	case headgate.Penalty:
		return s
	case headgate.SlidingCounter:
		return refundCounter(l, s, cost, at)
	case headgate.FixedWindow:
		if at != 0 && at < windowStart(l, s.Stamp) {
			return s
		}
	default:
		if at != 0 {
			if used == 0 {
				used = max(cost, l.Capacity())
			}
			return refundBucket(rateOf(l), s, now, cost, at, used)
		}
	}
	if s.Used -= min(cost, s.Used); s.Used == 0 {
		return State{}
	}
	return s
}

// Settle charges units, or takes -units back if units is negative; see [Charge] and [Refund].
func Settle(l *headgate.Limit, s State, now headgate.Instant, units int64, at headgate.Instant, used int64) State {
	if units < 0 {
		return Refund(l, s, now, -units, at, used)
	}
	return Charge(l, s, now, units)
}

// Again changes the decisions of a peek into those of a repeated request whose limits have changed
// since. The request is admitted or denied as it was the first time.
func Again(decisions []headgate.Decision, admitted bool) {
	for i := range decisions {
		if d := &decisions[i]; !d.Shadow && d.Allowed != admitted {
			d.Allowed, d.RetryAfter, d.Delay = admitted, 0, 0
			if !admitted {
				return
			}
		} else if !d.Shadow && !admitted {
			return
		}
	}
}

// Describe fills d with the decision about one limit. before is the state advanced to now. s is the
// state after the charge, or equal to before if there was none. Describe sets every field except
// Rule and Check. fits is the result of [Fits].
func Describe(d *headgate.Decision, l *headgate.Limit, before, s State, now headgate.Instant, cost int64, fits bool) {
	d.Limit, d.Allowed, d.At = l, fits, now
	if l.Algorithm == headgate.Penalty {
		d.RetryAfter, d.Delay = 0, 0
		describePenalty(d, l, s, now)
		return
	}
	d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay = answer(l, before, s, now, cost, fits)
}

// answer is Describe for a limit that is not a penalty. It does not fill a Decision, because that
// takes long in comparison.
func answer(l *headgate.Limit, before, s State, now headgate.Instant, cost int64, fits bool) (remaining int64, retry, reset, delay time.Duration) {
	used := s.Used
	var free Micros
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		free = drain(rateOf(l), s, now, used)
	case headgate.FixedWindow:
		if used > 0 {
			free = minus(s.Stamp, now)
		}
	case headgate.SlidingCounter:
		used += weight(l, s, now)
		free = resetCounter(l, s, now)
	}
	switch {
	case fits:
		if l.Algorithm == headgate.LeakyBucket {
			delay = drain(rateOf(l), before, now, before.Used).Duration()
		}
	case cost > l.Capacity():
		retry = headgate.Never
	default:
		retry = retryAfter(l, before, now, cost).Duration()
	}
	return max(0, l.Capacity()-used), retry, free.Duration(), delay
}

// retryAfter returns the time until cost fits. It must not fit now, but must be able to fit later.
func retryAfter(l *headgate.Limit, s State, now headgate.Instant, cost int64) Micros {
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		return drain(rateOf(l), s, now, s.Used+cost-l.Capacity())
	case headgate.FixedWindow:
		return minus(s.Stamp, now)
	default:
		return retryCounter(l, s, now, cost)
	}
}
