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

// advanceBucket drains the whole units refilled since the stamp, and moves the
// stamp to the instant when the last of them was.
func advanceBucket(r rate, s State, now headgate.Instant) State {
	num, den := r.num, r.den
	// A rate with a smaller numerator cannot express the old fraction; less than
	// a microsecond is lost, and to the caller's disadvantage.
	s.Extra = uint32(min(int64(s.Extra), num-1))
	if now < s.Stamp || now == s.Stamp && s.Extra > 0 {
		s.Stamp, s.Extra = now, 0
		return s
	}
	hi, lo := bits.Mul64(uint64(minus(now, s.Stamp)), uint64(num))
	lo, borrow := bits.Sub64(lo, uint64(s.Extra), 0)
	hi -= borrow // never below zero: a microsecond refills num, and the fraction is less
	if hi >= uint64(den) {
		return State{} // more units than 64 bits can count
	}
	var units, rest uint64
	switch {
	case hi > 0:
		units, rest = bits.Div64(hi, lo, uint64(den))
	case lo >= uint64(den): // else there is nothing to divide, as mostly on a busy key
		units, rest = lo/uint64(den), lo%uint64(den)
	}
	if units >= uint64(s.Used) {
		return State{}
	}
	if units == 0 {
		return s
	}
	s.Used -= uint32(units)
	back := (int64(rest) + num - 1) / num
	s.Stamp = plus(now, Micros(-back))
	s.Extra = uint32(back*num - int64(rest))
	return s
}

// drain is the time, rounded up to a microsecond, until units of the state's
// used units have been refilled. The state must have been advanced to now, so
// that less than one unit has been since its stamp.
func drain(r rate, s State, now headgate.Instant, units int64) Micros {
	if units <= 0 {
		return 0
	}
	num, den := r.num, r.den
	since := int64(minus(now, s.Stamp))*num - int64(s.Extra) // below den
	hi, lo := bits.Mul64(uint64(units), uint64(den))
	lo, borrow := bits.Sub64(lo, uint64(since), 0)
	hi -= borrow
	lo, carry := bits.Add64(lo, uint64(num-1), 0)
	hi += carry
	// MaxRefill keeps the quotient of any units up to the capacity small. More
	// units than that are in use only after the limit was lowered.
	if hi >= uint64(num) {
		return longest
	}
	q := lo
	if num > 1 { // a unit often takes whole microseconds
		q, _ = bits.Div64(hi, lo, uint64(num))
	}
	return Micros(min(q, uint64(longest)))
}

// refilled is what a bucket refills in a time: whole units, MaxCount
// at most, which is as good as all, and the rest in 1/den of a unit.
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

// refundBucket gives back cost units less what has been refilled of them since at:
// first of the used ones, counting cost, were refilled those that came before.
func refundBucket(r rate, s State, now headgate.Instant, cost int64, at headgate.Instant, used int64) State {
	units, rest := refilled(r, minus(now, at))
	if units -= used - cost; units < 0 {
		units, rest = 0, 0
	}
	if units >= cost {
		return s
	}
	// The part of a unit that is not given back is one that is not refilled.
	num, den := r.num, r.den
	back := cost - units
	since := int64(minus(now, s.Stamp))*num - int64(s.Extra) - rest
	if since < 0 {
		back--
		since += den
	}
	if back >= int64(s.Used) {
		return State{}
	}
	late := (since + num - 1) / num
	return State{Stamp: plus(now, Micros(-late)), Used: s.Used - uint32(back), Extra: uint32(late*num - since)}
}
