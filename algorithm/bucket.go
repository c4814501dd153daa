package algorithm

import (
	"math/bits"

	"github.com/headgate/headgate"
)

// rate is the speed of a refill: num units every den microseconds, in lowest terms.
type rate struct{ num, den int64 }

func rateOf(l *headgate.Limit) rate {
	num, den := l.Rate()
	return rate{num, den}
}

// advanceBucket drains the whole units that have been refilled since the stamp, and moves the stamp
// to the instant at which the last of them was refilled.
func advanceBucket(r rate, s State, now headgate.Instant) State {
	num, den := r.num, r.den
	// The fraction may have been stored for a rate with a larger numerator. It then becomes the
	// largest fraction of this rate, which is off by less than a microsecond.
	s.Extra = min(s.Extra, num-1)
	if now < s.Stamp || now == s.Stamp && s.Extra > 0 {
		s.Stamp, s.Extra = now, 0
		return s
	}
	hi, lo := bits.Mul64(uint64(minus(now, s.Stamp)), uint64(num))
	lo, borrow := bits.Sub64(lo, uint64(s.Extra), 0)
	hi -= borrow // never below zero: one microsecond refills num, and Extra is less than num
	if hi >= uint64(den) {
		return State{} // more units than 64 bits can count
	}
	var units, rest uint64
	switch {
	case hi > 0:
		units, rest = bits.Div64(hi, lo, uint64(den))
	case lo >= uint64(den): // otherwise no whole unit has been refilled, as is usual for a busy key
		units, rest = lo/uint64(den), lo%uint64(den)
	}
	if units >= uint64(s.Used) {
		return State{}
	}
	if units == 0 {
		return s
	}
	s.Used -= int64(units)
	back := (int64(rest) + num - 1) / num
	s.Stamp = plus(now, Micros(-back))
	s.Extra = back*num - int64(rest)
	return s
}

// drain returns the time until the given number of used units has been refilled, rounded up to a
// microsecond. The state must have been advanced to now, so that less than one unit has been
// refilled since its stamp.
func drain(r rate, s State, now headgate.Instant, units int64) Micros {
	if units <= 0 {
		return 0
	}
	num, den := r.num, r.den
	since := int64(minus(now, s.Stamp))*num - s.Extra // below den
	hi, lo := bits.Mul64(uint64(units), uint64(den))
	lo, borrow := bits.Sub64(lo, uint64(since), 0)
	hi -= borrow
	lo, carry := bits.Add64(lo, uint64(num-1), 0)
	hi += carry
	// MaxRefill bounds the quotient for any number of units up to the capacity. More units are in
	// use only after the limit was lowered.
	if hi >= uint64(num) {
		return longest
	}
	q := lo
	if num > 1 { // a unit often takes a whole number of microseconds, and then num is 1
		q, _ = bits.Div64(hi, lo, uint64(num))
	}
	return Micros(min(q, uint64(longest)))
}

// refilled returns what a bucket refills in the elapsed time: whole units, and the rest in 1/den of
// a unit. units is at most MaxCount, because no bucket holds more.
func refilled(r rate, elapsed Micros) (units, rest int64) {
	if elapsed <= 0 {
		return 0, 0
	}
	num, den := r.num, r.den
	hi, lo := bits.Mul64(uint64(elapsed), uint64(num))
	if hi >= uint64(den) {
		return headgate.MaxCount, 0
	}
	q, over := bits.Div64(hi, lo, uint64(den))
	return int64(min(q, headgate.MaxCount)), int64(over)
}

// refundBucket gives back cost units that were charged at the time at, except those that have been
// refilled since. used units were in use right after the charge, including cost. A bucket refills
// its units in the order in which they were charged, so cost was refilled last of them.
func refundBucket(r rate, s State, now headgate.Instant, cost int64, at headgate.Instant, used int64) State {
	units, rest := refilled(r, minus(now, at))
	if units -= used - cost; units < 0 {
		units, rest = 0, 0
	}
	if units >= cost {
		return s
	}
	// A unit that has been refilled in part is given back in part.
	num, den := r.num, r.den
	back := cost - units
	since := int64(minus(now, s.Stamp))*num - s.Extra - rest
	if since < 0 {
		back--
		since += den
	}
	if back >= s.Used {
		return State{}
	}
	late := (since + num - 1) / num
	return State{Stamp: plus(now, Micros(-late)), Used: s.Used - back, Extra: late*num - since}
}
