package algorithm

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate"
)

// Word is the state of a limit in 63 bits, so that a store can change it by one compare-and-swap, and
// sometimes 35 bits more, its high, which most charges leave as they are. What the bits mean depends
// on the limit; see [Kind]. Times in a Word count from an origin that the store chooses, and has to
// renew now and then; see [Word.Rebase].
//
//	token_bucket     the instant at which the bucket will be fully free, in 1/num microseconds since
//	leaky_bucket     the origin, for a rate of num units per den microseconds
//	fixed_window     the end of the window, and below it the units in it
//	sliding_counter  the window's number, the units in the window before, and the units in it
//
// The high has the upper bits of these. It is 0 unless the count and the period of a bucket have
// hardly a factor in common, or a window may hold more units than 63 bits have room for.
//
// Decisions about a Word equal those about a [State], to the fraction of a microsecond, as long as
// the clock never steps back: a bucket's Word does not tell when it was charged. A counter that is
// free has the Word 0 and the high 0, or those of any time up to now.
type Word uint64

const (
	// NoWord stands for a state that has no Word.
	NoWord Word = 1 << 63
	// MaxAge is how long after its origin a Word can be used, in µs: some 70 minutes. The origin
	// must be renewed before.
	MaxAge = Micros(1) << ageBits

	ageBits  = 32
	wordBits = 63
	// highBits is how many bits a high has: with them, every bucket has a Word. It holds less than
	// 2^53 · 366 days in µs + 2^53 · MaxAge < 2^98.
	highBits = 35
	// longRate is the numerator from which on the time of a bucket may need a high.
	longRate = 1 << (wordBits - ageBits)
	// A window never has more than MaxCount units, which is below 2^unitBits.
	unitBits = 53
)

// A Kind says what a Word means: two Words of one counter may be compared only if their kinds are
// equal. It is 0 if the states of a limit have no Words. From the upper bits down, it is
//
//	a bucket of up to 10^9 units a period   the count, and the numerator of the rate
//	another bucket                          largeKind, and what packs count and numerator; see mix
//	a window                                windowKind, wideKind if it has a high, how many bits each
//	                                        number of units has, and its slot without its place
//
// The upper half of a Kind tells apart all kinds of a counter, but for one pair of 2^28 of the second
// form.
type Kind uint64

const (
	windowKind Kind = 1 << 63
	wideKind   Kind = 1 << 62
	largeKind  Kind = 1 << 62
	unitsShift      = 56
	unitsMask       = 1<<6 - 1
	// What a slot consists of; see [headgate.Limit.Slot].
	slotMask       Kind = 1<<unitsShift - 1
	algorithmShift      = 52
	alignShift          = 48
	alignMask      Kind = 15 << alignShift
	firstAlign          = Kind(headgate.AlignFirst) << alignShift

	// A count of at most 2^53 is the product of the numerator and of what it has in common with the
	// period, so both together have at most 54 bits. Above them is how many of these the latter has.
	packedBits = 54
	// kindBits is where the upper half of a Kind begins.
	kindBits = 32
)

// KindOf returns the kind of a limit's Words.
func KindOf(l *headgate.Limit) Kind {
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		num, _ := l.Rate()
		if !Big(l) {
			return Kind(l.Count)<<kindBits | Kind(num)
		}
		if l.Count <= maxOrdinary {
			return Kind(l.Count)<<kindBits | Kind(num)
		}
		common := uint64(l.Count) / uint64(num)
		size := bits.Len64(common)
		return largeKind | mix(Kind(size)<<packedBits|Kind(num)<<size|Kind(common))
	case headgate.FixedWindow, headgate.SlidingCounter:
		k := windowKind | Kind(l.Slot())&slotMask
		size := bits.Len64(uint64(k.tick()))
		units := k.room(size, wordBits)
		if l.Count>>units != 0 {
			units = k.room(size, wordBits+highBits)
			k |= wideKind
		}
		return k | Kind(units)<<unitsShift
	}
	return 0
}

// room returns how many bits each number of units has, given how many the tick has, and how many a Word
// and its high have in all.
func (k Kind) room(size, all int) uint {
	switch {
	case k.twice():
		// A window that is not over began less than two periods before the origin.
		return uint(all-3-max(ageBits+2-size, 0)) / 2
	case k&alignMask == firstAlign:
		return uint(min(all-1-max(ageBits, size), unitBits))
	}
	return uint(min(all-53+size, unitBits)) // 2^52 µs after the epoch, it is 2112
}

// tick returns the unit of a window's time, in µs, but that of one that began with a request is 1.
// Calendar units begin with a second.
func (k Kind) tick() headgate.Instant {
	if k&alignMask > firstAlign {
		return 1_000_000
	}
	return headgate.Instant(k & (1<<alignShift - 1))
}

// twice reports whether the Word has the units of the window before.
func (k Kind) twice() bool {
	return k&(15<<algorithmShift) == (Kind(headgate.SlidingCounter)+1)<<algorithmShift
}

// mix makes the upper half of a Kind depend on all bits. It is its own inverse.
func mix(k Kind) Kind { return k ^ Kind(uint32(k)*0x9e3779b1>>4)<<kindBits }

// IsLarge reports whether the upper half of the Kind may be that of another limit, too.
func (k Kind) IsLarge() bool { return k>>62 == 1 }

// unpack returns the numerator of a bucket's rate, and what the count has in common with the period.
// The kind must be large.
func (k Kind) unpack() (num, common uint64) {
	k = mix(k &^ largeKind)
	packed, size := uint64(k&(1<<packedBits-1)), k>>packedBits
	return packed >> size, packed & (1<<size - 1)
}

// num returns the numerator of a bucket's rate.
func (k Kind) num() uint64 {
	if k.IsLarge() {
		num, _ := k.unpack()
		return num
	}
	return uint64(uint32(k))
}

// Count returns the count of a bucket with Words of the kind.
func (k Kind) Count() int64 {
	if k.IsLarge() {
		num, common := k.unpack()
		return int64(num * common)
	}
	return int64(k >> kindBits)
}

// OnWall reports whether the times of the Word are those of the wall clock.
func (k Kind) OnWall() bool {
	return k&windowKind != 0 && !k.twice() && k&alignMask != firstAlign
}

// DrawBucket takes cost units from the bucket with the given Word and high, if they fit, and returns
// its Word after that. If the clock has stepped back, or if the bucket would have another high, it
// returns NoWord; then the same has to be done with the [State].
func (w Word) DrawBucket(l *headgate.Limit, high uint64, origin, now headgate.Instant, cost int64) (after Word, fits bool) {
	num, den := l.Rate()
	age := uint64(now - origin)
	if age >= uint64(MaxAge) {
		return NoWord, false
	}
	left := l.Capacity() - cost
	if high != 0 || num >= longRate { // not in a function of its own: DrawBucket calls none
		at := times(int64(age), num)
		busy := number{high, uint64(w)}.minus(at)
		if left < 0 || times(left, den).less(busy) {
			return w, false
		}
		if n := busy.plus(at).plus(times(cost, den)); n.hi == high {
			return Word(n.lo), true
		}
		return NoWord, false
	}
	at := age * uint64(num)
	start := max(uint64(w), at)
	more, room := bits.Mul64(uint64(left), uint64(den))
	over, take := bits.Mul64(uint64(cost), uint64(den))
	switch {
	case left < 0 || more == 0 && start-at > room:
		return w, false
	case over == 0 && take < 1<<wordBits-start:
		return Word(start + take), true
	}
	return NoWord, false
}

// DrawWindow does for windows what DrawBucket does for a bucket. It also returns NoWord if the state
// after the charge has none. before is for DescribeState. kind must be that of the limit.
func (w Word) DrawWindow(l *headgate.Limit, kind Kind, high uint64, origin, now headgate.Instant, cost int64) (after Word, before State, fits bool) {
	s := kind.state(w, high, origin)
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
	case before == s && w != 0 && s.Used+cost < 1<<kind.units():
		return w + Word(cost), before, true
	}
	after, its := kind.word(Charge(l, before, now, cost), origin)
	if its != high {
		return NoWord, before, false
	}
	return after, before, true
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

// DescribeBucket is DescribeState for a bucket, from its Word and high.
func (w Word) DescribeBucket(l *headgate.Limit, high uint64, origin, now headgate.Instant, cost int64, fits, charged bool) (remaining int64, retry, reset, delay time.Duration) {
	rnum, rden := l.Rate()
	if high != 0 || rnum >= longRate {
		return w.describeLong(l, high, origin, now, cost, fits, charged)
	}
	num, den, capacity := uint64(rnum), uint64(rden), l.Capacity()
	at := uint64(now-origin) * num
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

// describeLong is DescribeBucket for any high and rate.
func (w Word) describeLong(l *headgate.Limit, high uint64, origin, now headgate.Instant, cost int64, fits, charged bool) (remaining int64, retry, reset, delay time.Duration) {
	num, den := l.Rate()
	capacity := l.Capacity()
	busy := number{high, uint64(w)}.minus(times(int64(now-origin), num))
	switch {
	case fits:
		if l.Algorithm == headgate.LeakyBucket {
			delay = Micros(busy.over(uint64(num))).Duration()
		}
	case cost > capacity:
		retry = headgate.Never
	default:
		retry = Micros(busy.minus(times(capacity-cost, den)).over(uint64(num))).Duration()
	}
	if charged {
		busy = busy.plus(times(cost, den))
	}
	return max(0, capacity-int64(busy.over(uint64(den)))), retry, Micros(busy.over(uint64(num))).Duration(), delay
}

// ceil returns a / b, rounded up. a is below 2^63.
func ceil(a, b uint64) uint64 {
	if b == 1 {
		return a
	}
	return (a + b - 1) / b
}

// number is hi·2^63 + lo; lo is below 2^63.
type number struct{ hi, lo uint64 }

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

// up returns n·2^k, and down n/2^k, rounded down.
func (n number) up(k uint) number {
	return number{n.hi<<k | n.lo>>(wordBits-k), n.lo << k &^ (1 << wordBits)}
}

func (n number) down(k uint) number {
	return number{n.hi >> k, (n.lo>>k | n.hi<<(wordBits-k)) &^ (1 << wordBits)}
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

// units returns how many bits each number of units has.
func (k Kind) units() uint { return uint(k>>unitsShift) & unitsMask }

// times returns the unit of a window's time, in µs, and what that time counts from.
func (k Kind) times(origin headgate.Instant) (tick, base headgate.Instant) {
	switch tick = k.tick(); {
	case k.twice():
		return tick, (origin/tick - 2) * tick
	case k&alignMask == firstAlign:
		return 1, origin
	}
	return tick, 0
}

// state returns the state of the window with the given Word and high.
func (k Kind) state(w Word, high uint64, origin headgate.Instant) State {
	if w == 0 && high == 0 {
		return State{}
	}
	units := k.units()
	mask := uint64(1)<<units - 1
	used, before, t := uint64(w)&mask, uint64(0), uint64(w)>>units
	switch {
	case high != 0:
		n := number{high, uint64(w)}.down(units)
		if k.twice() {
			before = n.lo & mask
			n = n.down(units)
		}
		t = n.lo
	case k.twice():
		before = t & mask
		t >>= units
	}
	tick, base := k.times(origin)
	return State{base + headgate.Instant(t)*tick, int64(used), int64(before)}
}

// word is the inverse of state. It returns NoWord if there is no room.
func (k Kind) word(s State, origin headgate.Instant) (w Word, high uint64) {
	if !k.twice() {
		s.Extra = 0
	}
	tick, base := k.times(origin)
	units := k.units()
	switch {
	case s.Used == 0 && s.Extra == 0:
		return 0, 0
	case s.Stamp < base || s.Used>>units != 0 || s.Extra>>units != 0:
		return NoWord, 0
	}
	n := number{0, uint64((s.Stamp - base) / tick)}
	if k.twice() {
		n = n.up(units).plus(number{0, uint64(s.Extra)})
	}
	n = n.up(units).plus(number{0, uint64(s.Used)})
	if n.hi>>highBits != 0 || n.hi != 0 && k&wideKind == 0 {
		return NoWord, 0
	}
	return Word(n.lo), n.hi
}

// WordOf returns the Word of a state and its high, or NoWord. The limit must be one for which
// [KindOf] is not 0.
func WordOf(l *headgate.Limit, s State, origin headgate.Instant) (w Word, high uint64) {
	if l.Algorithm > headgate.LeakyBucket {
		return KindOf(l).word(s, origin)
	}
	if s.Used == 0 {
		return 0, 0
	}
	r := rateOf(l)
	n := times(s.Used, r.den).plus(number{0, uint64(s.Extra)})
	switch age := minus(s.Stamp, origin); {
	case age < 0:
		n = n.minus(times(int64(-age), r.num))
	case age < MaxAge:
		n = n.plus(times(int64(age), r.num))
	default:
		return NoWord, 0
	}
	return Word(n.lo), n.hi
}

// StateOf is the inverse of [WordOf], at a time at which the bucket may have refilled some units.
// The limit must have the algorithm and the period of the one that the Word is of. The kind of the
// Word may be another one; see [KindOf].
func StateOf(l *headgate.Limit, kind Kind, w Word, high uint64, origin, now headgate.Instant) State {
	if l.Algorithm > headgate.LeakyBucket {
		return kind.state(w, high, origin)
	}
	r := rateAt(l, kind.Count())
	num, den := uint64(r.num), uint64(r.den)
	busy := number{high, uint64(w)}.minus(times(int64(max(now, origin)-origin), r.num))
	used := busy.over(den)
	if used == 0 {
		return State{}
	}
	since := (used*den - busy.lo) &^ (1 << wordBits) // time since used units were in use, in 1/num µs
	late := number{0, since}.over(num)
	return State{Stamp: plus(now, -Micros(late)), Used: int64(used), Extra: int64(late*num - since)}
}

// FreeAt returns when a counter with the Word is free, rounded up. For the Word 0 without a high that
// is long ago.
func (w Word) FreeAt(kind Kind, high uint64, origin headgate.Instant) headgate.Instant {
	if w == 0 && high == 0 {
		return 0
	}
	if kind&windowKind == 0 {
		return plus(origin, Micros(number{high, uint64(w)}.over(kind.num())))
	}
	s := kind.state(w, high, origin)
	switch {
	case !kind.twice():
		return s.Stamp
	case s.Used > 0:
		return s.Stamp + 2*kind.tick()
	}
	return s.Stamp + kind.tick()
}

// Rebase returns the same Word and its high for another origin, which must not be before the present
// one. A counter that was free at the new origin has the Word 0 then.
func (w Word) Rebase(kind Kind, high uint64, from, to headgate.Instant) (Word, uint64) {
	n := number{high, uint64(w)}
	switch {
	case kind&windowKind == 0:
		n = n.minus(times(int64(to-from), int64(kind.num())))
	case n == (number{}) || kind.OnWall():
	case w.FreeAt(kind, high, from) <= to:
		n = number{}
	default:
		tick, was := kind.times(from)
		_, is := kind.times(to)
		back := number{0, uint64((is - was) / tick)}.up(kind.units())
		if kind.twice() {
			back = back.up(kind.units())
		}
		n = n.minus(back)
	}
	return Word(n.lo), n.hi
}
