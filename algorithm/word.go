package algorithm

import (
	"math"
	"math/bits"
	"time"

	"github.com/headgate/headgate"
)

// Word is the state of a limit in 63 bits, so that a store can change it by one compare-and-swap.
// What the bits mean depends on the limit's algorithm and period, never on its count or burst, but
// for the buckets: see [KindOf]. Times in a Word count from an origin that the store chooses, and
// has to renew now and then; see [Word.Rebase].
//
//	token_bucket     the instant at which the bucket will be fully free, in 1/num microseconds since
//	leaky_bucket     the origin, for a rate of num units per den microseconds; of that number the
//	                 lower 63 bits, the others are its high
//	fixed_window     the end of the window, and above it nothing; the units in it are the low bits
//	sliding_counter  the window's number, the units in it, and the units in the window before
//
// Decisions about a Word equal those about a [State], to the fraction of a microsecond, as long as
// the clock never steps back: a bucket's Word does not tell when it was charged. A counter that is
// free has the Word 0, or that of any time up to now.
type Word uint64

const (
	// NoWord stands for a state that has no Word.
	NoWord Word = 1 << 63
	// MaxAge is how long after its origin a Word can be used, in µs: some 70 minutes. The origin
	// must be renewed before.
	MaxAge = Micros(1) << ageBits

	ageBits  = 32
	wordBits = 63
	// windowKind is the kind of all Words that hold the units of windows.
	windowKind = math.MaxUint32
	// A window never has more than MaxCount units, which is below 2^unitBits.
	unitBits = 53
)

// KindOf tells apart what Words can mean: two Words of one counter may be compared only if their
// kinds are equal. It is 0 if the states of the limit have no Words. For a bucket it is the count,
// because its Words depend on the rate.
func KindOf(l *headgate.Limit) uint32 {
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		if Big(l) {
			return 0
		}
		return uint32(l.Count)
	case headgate.FixedWindow, headgate.SlidingCounter:
		return windowKind
	}
	return 0
}

// DrawBucket takes cost units from the bucket with the given Word and high, if they fit, and returns
// its Word after that. If the clock has stepped back, or if the bucket would have another high, it
// returns NoWord; then the same has to be done with the [State].
//
// The high is 0 unless the count and the period of the limit have hardly a factor in common, and
// most charges leave it as it is.
func (w Word) DrawBucket(l *headgate.Limit, high uint32, origin, now headgate.Instant, cost int64) (after Word, fits bool) {
	num, den := l.Rate()
	at, ok := since(origin, now, num)
	if !ok {
		return NoWord, false
	}
	left, start := l.Capacity()-cost, max(uint64(w), at)
	more, room := bits.Mul64(uint64(left), uint64(den))
	over, take := bits.Mul64(uint64(cost), uint64(den))
	switch {
	case left < 0 || high == 0 && more == 0 && start-at > room:
		return w, false
	case high == 0 && over == 0 && take < 1<<wordBits-start:
		return Word(start + take), true
	case high == 0:
		return NoWord, false
	}
	busy := w.busy(high, at)
	if times(left, den).less(busy) {
		return w, false
	}
	if n := busy.plus(number{0, at}).plus(times(cost, den)); n.hi == uint64(high) {
		return Word(n.lo), true
	}
	return NoWord, false
}

// DrawWindow does for windows what DrawBucket does for a bucket. It also returns NoWord if the state
// after the charge has none. before is for DescribeState.
func (w Word) DrawWindow(l *headgate.Limit, origin, now headgate.Instant, cost int64) (after Word, before State, fits bool) {
	f := ScaleOf(l, 0).window(origin)
	s := w.window(l, f)
	used := int64(0)
	switch {
	case s.IsZero():
	case l.Algorithm == headgate.FixedWindow:
		before = advanceFixed(l, s, now)
		used = before.Used
	default:
		before = advanceCounter(l, s, now)
		used = before.Used + weight(l, before, now)
	}
	switch {
	case before != s && Moved(s, before, now):
		return NoWord, before, false
	case used+cost > l.Count:
		return w, before, false
	case before == s && w != 0 && s.Used+cost < 1<<f.units:
		return w + Word(cost), before, true
	}
	return wordOfWindow(l, Charge(l, before, now, cost), f), before, true
}

// DescribeState returns the decision about a counter whose Word was the given state, as [Describe]
// does. fits is a result of DrawBucket or DrawWindow, and charged says that the units were taken.
func DescribeState(l *headgate.Limit, before State, now headgate.Instant, cost int64, fits, charged bool) (remaining int64, retry, reset, delay time.Duration) {
	after := before
	switch {
	case !charged:
	case before.IsZero():
		after = Charge(l, before, now, cost)
	default:
		after.Used += cost // the limit bounds it
	}
	return answer(l, before, after, now, cost, fits)
}

// DescribeBucket is DescribeState for a bucket with a high of 0.
func (w Word) DescribeBucket(l *headgate.Limit, origin, now headgate.Instant, cost int64, fits, charged bool) (remaining int64, retry, reset, delay time.Duration) {
	rnum, rden := l.Rate()
	num, den, capacity := uint64(rnum), uint64(rden), l.Capacity()
	at, _ := since(origin, now, rnum)
	busy := max(uint64(w), at) - at
	switch {
	case fits:
		if l.Algorithm == headgate.LeakyBucket {
			delay = Micros(ceil(busy, num)).Duration()
		}
	case cost > capacity:
		retry = headgate.Never
	default:
		retry = Micros(ceil(busy-uint64(capacity-cost)*den, num)).Duration()
	}
	used := cost
	if !charged || busy != 0 { // otherwise nothing else is in use
		if charged {
			busy += uint64(cost) * den
		}
		used = int64(ceil(busy, den))
	} else {
		busy = uint64(cost) * den
	}
	return max(0, capacity-used), retry, Micros(ceil(busy, num)).Duration(), delay
}

// ceil returns a / b, rounded up. a is below 2^63.
func ceil(a, b uint64) uint64 {
	if b == 1 {
		return a
	}
	return (a + b - 1) / b
}

// since returns the time from origin to now in 1/num µs, if a Word has room for it.
func since(origin, now headgate.Instant, num int64) (at uint64, ok bool) {
	age := uint64(now - origin)
	return age * uint64(num), age < uint64(MaxAge)
}

// number is hi·2^63 + lo; lo is below 2^63.
type number struct{ hi, lo uint64 }

// busy returns the time until a bucket is free, in 1/num µs.
func (w Word) busy(high uint32, at uint64) number {
	return number{uint64(high), uint64(w)}.minus(number{0, at})
}

func times(a, b int64) number {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return number{hi<<1 | lo>>wordBits, lo &^ (1 << wordBits)}
}

func (n number) plus(m number) number {
	lo := n.lo + m.lo
	return number{n.hi + m.hi + lo>>wordBits, lo &^ (1 << wordBits)}
}

// minus returns 0 in place of a difference below.
func (n number) minus(m number) number {
	if n.less(m) {
		return number{}
	}
	lo := n.lo - m.lo
	return number{n.hi - m.hi - lo>>wordBits, lo &^ (1 << wordBits)}
}

func (n number) less(m number) bool { return n.hi < m.hi || n.hi == m.hi && n.lo < m.lo }

// over returns n / d, rounded up, or 2^62 in place of more than that, which is longer than any time.
func (n number) over(d uint64) uint64 {
	if n.hi == 0 {
		return min(ceil(n.lo, d), 1<<62)
	}
	lo := n.lo + d - 1
	hi := n.hi + lo>>wordBits
	if hi >= d>>1 {
		return 1 << 62
	}
	q, _ := bits.Div64(hi>>1, hi<<wordBits|lo&^(1<<wordBits), d)
	return q
}

// A Scale is what has to be known of a counter, beside its Word, to tell when it is free. For a
// bucket it is its high, and below that the numerator of its rate; for windows, the unit of their
// times, with marks.
type Scale uint64

const (
	counterScale Scale = 1 << 63 // a sliding counter
	firstScale   Scale = 1 << 62 // a fixed window that began with a request
	wallScale    Scale = 1 << 61 // a fixed window that began at a time of the wall clock
	tickMask           = wallScale - 1
	highBit            = 32 // the lowest of a high
)

// ScaleOf returns the scale of a counter with the given high. The limit must be one for which
// [KindOf] is not 0.
func ScaleOf(l *headgate.Limit, high uint32) Scale {
	switch {
	case l.Algorithm <= headgate.LeakyBucket:
		num, _ := l.Rate()
		return Scale(high)<<highBit | Scale(num)
	case l.Algorithm == headgate.SlidingCounter:
		return counterScale | Scale(l.Micros())
	case l.Align == headgate.AlignUTC:
		return wallScale | Scale(l.Micros())
	case l.Align == headgate.AlignFirst:
		return firstScale | Scale(l.Micros())
	}
	return wallScale | 1_000_000 // calendar units begin with a second
}

// OnWall reports whether the times of the Word are those of the wall clock.
func (s Scale) OnWall() bool { return s&wallScale != 0 && s < firstScale }

// window is how the Word of a window is put together.
type window struct {
	tick  headgate.Instant // the unit of the window's time, in µs
	base  headgate.Instant // what that time counts from
	units uint             // how many bits each number of units has
}

func (s Scale) window(origin headgate.Instant) window {
	tick := headgate.Instant(s & tickMask)
	size := bits.Len64(uint64(tick))
	switch {
	case s&counterScale != 0:
		// A window that is not over began less than two periods before the origin.
		times := max(ageBits+2-size, 0) + 3
		return window{tick, (origin/tick - 2) * tick, uint(min((63-times)/2, unitBits))}
	case s&firstScale != 0:
		times := max(ageBits, size) + 1
		return window{1, origin, uint(min(63-times, unitBits))}
	}
	// 2^52 µs after the epoch, it is 2112.
	times := 52 + 1 - size
	return window{tick, 0, uint(min(63-times, unitBits))}
}

// window returns the state of windows from their Word, which is put together like f.
func (w Word) window(l *headgate.Limit, f window) State {
	if w == 0 {
		return State{}
	}
	s := State{Used: int64(w & (1<<f.units - 1))}
	w >>= f.units
	if l.Algorithm == headgate.SlidingCounter {
		s.Extra = int64(w & (1<<f.units - 1))
		w >>= f.units
	}
	s.Stamp = f.base + headgate.Instant(w)*f.tick
	return s
}

// WordOf returns the Word of a state and its high, or NoWord. The limit must be one for which
// [KindOf] is not 0.
func WordOf(l *headgate.Limit, s State, origin headgate.Instant) (w Word, high uint32) {
	if l.Algorithm <= headgate.LeakyBucket {
		return wordOfBucket(rateOf(l), s, origin)
	}
	return wordOfWindow(l, s, ScaleOf(l, 0).window(origin)), 0
}

func wordOfWindow(l *headgate.Limit, s State, f window) Word {
	if s.Used == 0 && (s.Extra == 0 || l.Algorithm != headgate.SlidingCounter) {
		return 0
	}
	t, units, fields := uint64(s.Stamp-f.base), uint64(s.Used), f.units
	if f.tick > 1 {
		t /= uint64(f.tick)
	}
	if l.Algorithm == headgate.SlidingCounter {
		units |= uint64(s.Extra) << f.units
		fields *= 2
		if s.Extra >= 1<<f.units {
			return NoWord
		}
	}
	if s.Stamp < f.base || s.Used >= 1<<f.units || t >= 1<<(63-fields) {
		return NoWord
	}
	return Word(t<<fields | units)
}

func wordOfBucket(r rate, s State, origin headgate.Instant) (w Word, high uint32) {
	if s.Used == 0 {
		return 0, 0
	}
	n := times(s.Used, r.den).plus(number{0, uint64(s.Extra)})
	if s.Stamp < origin {
		n = n.minus(times(int64(minus(origin, s.Stamp)), r.num))
		return n.word()
	}
	at, ok := since(origin, s.Stamp, r.num)
	if !ok {
		return NoWord, 0
	}
	return n.plus(number{0, at}).word()
}

// word returns the Word and the high that a number is, or NoWord.
func (n number) word() (w Word, high uint32) {
	if n.hi > math.MaxUint32 {
		return NoWord, 0
	}
	return Word(n.lo), uint32(n.hi)
}

// StateOf is the inverse of [WordOf], at a time at which the bucket may have refilled some units.
// The limit must have the algorithm and the period of the one that the Word is of. The kind of the
// Word may be another one; see [KindOf].
func StateOf(l *headgate.Limit, kind uint32, w Word, high uint32, origin, now headgate.Instant) State {
	if l.Algorithm > headgate.LeakyBucket {
		return w.window(l, ScaleOf(l, 0).window(origin))
	}
	r := rateAt(l, int64(kind))
	at, _ := since(origin, max(now, origin), r.num)
	busy := w.busy(high, at)
	used := busy.over(uint64(r.den))
	if used == 0 {
		return State{}
	}
	since := (used*uint64(r.den) - busy.lo) &^ (1 << wordBits) // time since used units were in use, in 1/num µs
	late := number{0, since}.over(uint64(r.num))
	return State{Stamp: plus(now, -Micros(late)), Used: int64(used), Extra: int64(late*uint64(r.num) - since)}
}

// FreeAt returns when a counter with the Word is free, rounded up. For the Word 0 that is long ago.
func (w Word) FreeAt(s Scale, origin headgate.Instant) headgate.Instant {
	if s < wallScale {
		n := number{uint64(s >> highBit), uint64(w)}
		if n == (number{}) {
			return 0
		}
		return plus(origin, Micros(n.over(uint64(uint32(s)))))
	}
	if w == 0 {
		return 0
	}
	f := s.window(origin)
	units := uint64(w) & (1<<f.units - 1)
	w >>= f.units
	if s&counterScale == 0 {
		return f.base + headgate.Instant(w)*f.tick
	}
	w >>= f.units
	end := f.base + headgate.Instant(w+1)*f.tick
	if units > 0 {
		end += f.tick
	}
	return end
}

// Rebase returns the same Word and its scale for another origin, which must not be before the present
// one. A counter that was free at the new origin has the Word 0 then.
func (w Word) Rebase(s Scale, from, to headgate.Instant) (Word, Scale) {
	if s < wallScale {
		num := Scale(uint32(s))
		n := number{uint64(s >> highBit), uint64(w)}.minus(times(int64(to-from), int64(num)))
		return Word(n.lo), Scale(n.hi)<<highBit | num
	}
	var back uint64
	switch {
	case w == 0 || s.OnWall():
		return w, s
	case w.FreeAt(s, from) <= to:
		return 0, s
	case s&counterScale != 0:
		f, g := s.window(from), s.window(to)
		back = uint64((g.base-f.base)/f.tick) << (2 * f.units)
	default:
		back = uint64(to-from) << s.window(from).units
	}
	return w - Word(back), s
}
