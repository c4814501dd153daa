package algorithm

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate"
)

// Word is the state of a token or leaky bucket in 64 bits, so that a store can change it by one
// compare-and-swap. It is the instant at which the bucket will be fully free, in 1/num microseconds
// since the store's origin, for a rate of num units per den microseconds. Its decisions equal those
// of a [State], to the fraction of a microsecond, as long as the clock never steps back: a Word
// does not tell when it was charged. If a bucket is free, its Word is any number up to now, such as
// 0.
type Word uint64

const (
	// wordBits bounds a Word, the time now, and what a full bucket adds to it.
	wordBits = 62
	// maxWordNum is the largest num of a rate whose buckets have a Word. So a Word has room for 35
	// years between the origin and the instant at which the bucket is free.
	maxWordNum = 4096
)

// HasWord reports whether the buckets of a limit can be kept as a [Word]. They cannot if the rate
// is uncommon, or if the bucket takes too long to refill. HasWord implies that [Mark] has room for
// every state of the limit.
func HasWord(l *headgate.Limit) bool {
	num, den := l.Rate()
	hi, full := bits.Mul64(uint64(l.Capacity()), uint64(den))
	// The last condition says that mark has room; with a call of mark, HasWord is not inlined.
	return l.Algorithm <= headgate.LeakyBucket && num <= maxWordNum && hi == 0 && full < 1<<wordBits && (l.Count <= smallCount || num == 1)
}

// A Draw is an attempt to take units from a bucket that is kept as a [Word]. It holds what a
// decision needs besides the Word, so that a store computes little between reading a Word and
// replacing it.
type Draw struct {
	now  uint64 // in 1/num µs since the origin
	most uint64 // the Word may be ahead of now by at most this, in 1/num µs
	add  uint64 // what the cost adds to the Word
	fits bool   // the cost is not above the limit's capacity
}

// DrawFrom returns the Draw of cost units from a limit for which [HasWord] is true. now is the time
// since the origin. It returns false if the time does not fit into a Word.
func DrawFrom(l *headgate.Limit, now Micros, cost int64) (d Draw, ok bool) {
	num, den := l.Rate()
	left := l.Capacity() - cost
	d.now, d.fits = uint64(now)*uint64(num), left >= 0
	if d.fits {
		d.most, d.add = uint64(left)*uint64(den), uint64(cost)*uint64(den)
	}
	return d, uint64(now) < 1<<wordBits/maxWordNum
}

// Take returns the Word after the units have been taken. It returns false if they do not fit.
func (d Draw) Take(w Word) (after Word, fits bool) {
	busy := d.busy(w)
	return Word(d.now + busy + d.add), d.fits && busy <= d.most
}

// busy returns the time until the bucket is free, in 1/num µs.
func (d Draw) busy(w Word) uint64 {
	if uint64(w) > d.now {
		return uint64(w) - d.now
	}
	return 0
}

// Describe returns the decision of Take about w. It says the same as the function [Describe], but
// not in a Decision, because filling one takes long in comparison.
func (d Draw) Describe(l *headgate.Limit, w Word, cost int64, fits bool) (remaining int64, retry, reset, delay time.Duration) {
	rnum, rden := l.Rate()
	num, den := uint64(rnum), uint64(rden)
	busy := d.busy(w)
	switch {
	case fits:
		if l.Algorithm == headgate.LeakyBucket {
			delay = Micros(ceil(busy, num)).Duration()
		}
		busy += d.add
	case d.fits:
		retry = Micros(ceil(busy-d.most, num)).Duration()
	default:
		retry = headgate.Never
	}
	used := cost
	if !fits || busy != d.add { // otherwise nothing else is in use
		used = int64(ceil(busy, den))
	}
	return max(0, l.Capacity()-used), retry, Micros(ceil(busy, num)).Duration(), delay
}

// ceil returns a / b, rounded up.
func ceil(a, b uint64) uint64 {
	if b == 1 {
		return a
	}
	return (a + b - 1) / b
}

// WordOf returns the Word of a state that [Plain] has returned for a limit for which [HasWord] is
// true. It returns false if the state has no Word. The Word counts time from origin.
func WordOf(l *headgate.Limit, s State, origin headgate.Instant) (w Word, ok bool) {
	if s.Used == 0 {
		return 0, true
	}
	num, den := l.Rate()
	since := minus(s.Stamp, origin)
	if since < 0 || since >= 1<<wordBits/maxWordNum {
		return 0, false
	}
	hi, used := bits.Mul64(uint64(s.Used), uint64(den))
	w = Word(uint64(since)*uint64(num) + uint64(s.Extra) + used)
	return w, hi == 0 && used < 1<<wordBits && w < 1<<wordBits
}

// OfWord is the inverse of [WordOf]: it returns what a store keeps at now, in the limit's own slot,
// for the Word of a list that has the limit's period and the given count. See [Mark].
func OfWord(l *headgate.Limit, count int64, w Word, now, origin headgate.Instant) (s State) {
	r := (&Bucket{period: l.Micros()}).rate(count)
	at := uint64(minus(now, origin)) * uint64(r.num)
	if uint64(w) <= at {
		return State{}
	}
	used := ceil(uint64(w)-at, uint64(r.den))
	since := used*uint64(r.den) - (uint64(w) - at) // time since used units were in use, in 1/num µs
	late := ceil(since, uint64(r.num))
	s = State{Stamp: plus(now, -Micros(late)), Used: uint32(used), Extra: uint32(late*uint64(r.num) - since)}
	s.Extra += mark(count, r.num)
	return s
}

// FreeAt returns when the bucket of a Word is free, as the time after the origin, rounded up.
// num is the numerator of its rate.
func (w Word) FreeAt(num int64) Micros { return Micros(ceil(uint64(w), uint64(num))) }
