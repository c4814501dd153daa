package algorithm

import (
	"math"

	"github.com/headgate/headgate"
)

// In the bucket of a store, the Extra of a state also says at which rate the state drains. A
// program that does not know these marks sees an Extra that is too large for a fraction, and takes
// it for the largest fraction.
const (
	// marked + n(n-1)/2 + fraction stands for a fraction and a count n of at most smallCount. All
	// fractions are below marked.
	marked = 1 << 30
	// smallCount is the largest count for which these numbers stay below several.
	smallCount = 46_340
	// several + fraction, in the bucket of all lists, says that there are further states. One of
	// those has no units in use, and gives the count of the fastest list. several + count, in a
	// further state, means a wide bucket of that count, without a fraction.
	several = 1 << 31
	// large + count stands for a count without a fraction.
	large = 3 << 30
)

// A number in the state of a store has 32 bits. Larger numbers have two halves, and the state has a
// further one for the high halves; see split. What a program that knows no halves sees of a number is
// more than any of its limits admits.
const (
	// maxOrdinary is the largest count, and the largest number of units in use, of limits that are not
	// big.
	maxOrdinary = 1_000_000_000
	// halved says that a number has a high half.
	halved = 1 << 31
	// highHalf is the slot, after that of the state, in which its high halves are.
	highHalf = 2 + maxOwn
	// fractionBits is how many bits of the fraction of a bucket are in its low half. Above them is
	// alone in the bucket of all lists, and in an own bucket ownHalf, which stands for a count that is
	// not too fast in a program that knows no halves.
	fractionBits = 29
	alone        = 1 << fractionBits
	ownHalf      = large + 1<<fractionBits
	// The high half of a bucket has its count in its stamp; lower bits of its stamp, by which it is known
	// to belong to the state, above the high half of its units; and a bit for a wide bucket above that of
	// its fraction.
	unitsHalf = 22
	stampHalf = 1<<10 - 1
	wideHalf  = 1 << 24
)

// Big reports whether the numbers of a limit may need more than 32 bits: its count or burst is more
// than 10^9.
func Big(l *headgate.Limit) bool { return l.Count > maxOrdinary || l.Burst > maxOrdinary }

// MaxUsed returns how many units a charge by the limit can bring a counter to: [headgate.MaxCount] if
// the limit is [Big], and otherwise 10^9.
func MaxUsed(l *headgate.Limit) int64 {
	if Big(l) {
		return headgate.MaxCount
	}
	return maxOrdinary
}

// lowHalf returns what the own state of a counter has of a number.
func lowHalf(n int64) int64 {
	if n < halved {
		return n
	}
	return halved | n&(halved-1)
}

// needsHalf reports whether a bucket of a count has numbers that need a high half.
func needsHalf(count, used int64) bool { return count > maxOrdinary || used >= halved }

// split returns the two states that a store keeps for a state of a bucket. as is several, with alone if
// there are no further states but the high half, or ownHalf for an own bucket.
func split(s State, count int64, as int64, wide bool) (low, high State) {
	low = State{s.Stamp, lowHalf(s.Used), as + s.Extra&(1<<fractionBits-1)}
	high = State{headgate.Instant(count), s.Used>>31 | int64(s.Stamp)&stampHalf<<unitsHalf, s.Extra >> fractionBits}
	if wide {
		high.Extra |= wideHalf
	}
	return low, high
}

// join is the inverse of split. It returns false if the high half does not belong to the low one: a
// program that knows no halves has written that since.
func join(low, high State) (s State, count int64, wide, ok bool) {
	if high.Stamp == 0 || int64(low.Stamp)&stampHalf != high.Used>>unitsHalf || low.Extra < several || low.Extra >= large && low.Extra < ownHalf {
		return low, 0, false, false
	}
	s = State{low.Stamp, low.Used&(halved-1) | high.Used&(1<<unitsHalf-1)<<31, low.Extra&(1<<fractionBits-1) | high.Extra&(wideHalf-1)<<fractionBits}
	return s, int64(high.Stamp), high.Extra&wideHalf != 0, true
}

// mark returns the number that is added to a fraction to record its count. It is 0 if the sum has
// no room for both.
func mark(count, num int64) int64 {
	switch {
	case count > maxOrdinary:
	case count <= smallCount:
		return marked + count*(count-1)/2
	case num == 1:
		return large + count
	}
	return 0
}

// unmark is the inverse of mark. It also returns the fraction. extra must be marked or more, and
// must not mean several.
func unmark(extra int64) (count, fraction int64) {
	if extra >= large {
		return extra - large, 0
	}
	n := extra - marked
	count = int64(math.Sqrt(float64(8*n+1))+1) / 2
	for count*(count-1)/2 > n {
		count--
	}
	for count*(count+1)/2 <= n {
		count++
	}
	return count, n - count*(count-1)/2
}

// Plain converts a state that a store keeps in the limit's slot to the form that the functions of
// this package take. It returns false if [LoadCounter] has to, because a list of another rate has used
// it, or because not all of it is in one slot.
func Plain(l *headgate.Limit, s State) (State, bool) {
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
	case headgate.FixedWindow:
		if s.Used >= halved {
			s.Used, s.Extra = s.Used-halved+s.Extra*halved, 0
		}
		return s, true
	case headgate.SlidingCounter:
		return s, s.Used < halved && s.Extra < halved
	default:
		return s, true
	}
	num, _ := l.Rate()
	m := MarkOf(l)
	if s.Extra >= marked {
		s.Extra -= m // otherwise the state is free, or was written by a program without marks
		return s, m != 0 && 0 <= s.Extra && s.Extra < num && s.Used < halved
	}
	return s, m != 0
}

// Mark is the inverse of [Plain]: it returns what a store keeps for a state for which Plain is
// true.
func Mark(l *headgate.Limit, s State) State {
	switch {
	case l.Algorithm <= headgate.LeakyBucket && s.Used > 0:
		s.Extra += MarkOf(l)
	case l.Algorithm == headgate.FixedWindow && s.Used >= halved:
		s.Used, s.Extra = lowHalf(s.Used), s.Used>>31
	}
	return s
}

// MarkOf returns the number that Mark adds to the Extra of a state that is not free. It is 0 for
// limits for which Plain is never true.
func MarkOf(l *headgate.Limit) int64 {
	if Big(l) {
		return 0
	}
	num, _ := l.Rate()
	return mark(l.Count, num)
}

// HasSlots reports whether s, the state in the limit's own slot, says that the store keeps further
// states of the bucket. If the store has no state in the limit's own slot, there may be further
// states too, unless the store can rule that out.
func HasSlots(s State) bool { return s.Extra >= several && s.Extra < large }

// HasFurther reports whether a store may keep further states of the counter, of any algorithm, whose
// state in the limit's own slot is s.
func HasFurther(s State) bool { return s.Used >= halved || s.Extra >= several }

// BucketSlot returns the slot of state i of a bucket or sliding counter. State 0 is in the limit's own slot.
func BucketSlot(l *headgate.Limit, i int) uint64 { return l.Slot() | uint64(i)<<48 }

// LoadBucket returns the bucket of a limit. slots are the states that a store keeps under each
// [BucketSlot]; missing states are zero.
func LoadBucket(l *headgate.Limit, slots *[BucketSlots]State) *Bucket {
	b := &Bucket{period: l.Micros(), all: slots[0], count: l.Count}
	halves := false
	switch extra := slots[0].Extra; {
	case extra < marked: // written by a program without marks
	case HasSlots(slots[0]):
		if s, count, _, ok := join(slots[0], slots[highHalf]); ok {
			b.all, b.count, halves = s, count, true
		} else {
			b.all.Extra -= several
		}
	default:
		b.count, b.all.Extra = unmark(extra)
	}
	for i, s := range slots[1:highHalf] {
		half, count, wide, ok := join(s, slots[1+i+highHalf])
		switch {
		case s.Extra < marked:
		case s.Used == 0:
			if HasSlots(slots[0]) {
				if !halves {
					b.count, _ = unmark(s.Extra)
				}
				b.since = s.Stamp
			}
		case ok:
			b.insert(ownBucket{count: count, wide: wide, state: half}, s.Stamp)
		case HasSlots(s):
			o := ownBucket{count: s.Extra - several, wide: true, state: s}
			o.state.Extra = 0
			b.insert(o, s.Stamp)
		default:
			o := ownBucket{state: s}
			o.count, o.state.Extra = unmark(s.Extra)
			b.insert(o, s.Stamp)
		}
	}
	if b.all.Used == 0 {
		b.all, b.count = State{}, 0
	}
	return b
}

// Slots is the inverse of LoadBucket: it returns what a store is to keep for the bucket.
func (b *Bucket) Slots() (slots [BucketSlots]State) {
	b.round()
	if len(b.own) == 0 {
		return keep(b.count, b.rate(b.count), b.all)
	}
	slots[0] = b.all
	n := 1
	if needsHalf(b.count, b.all.Used) {
		slots[0], slots[highHalf] = split(b.all, b.count, several, false)
	} else {
		slots[0].Extra += several
	}
	if b.all.Used > 0 {
		slots[n] = countState(b.count, b.since)
		n++
	}
	for _, o := range b.own {
		s := &slots[n]
		*s = o.state
		switch m := mark(o.count, b.rate(o.count).num); {
		case needsHalf(o.count, o.state.Used):
			*s, slots[n+highHalf] = split(o.state, o.count, ownHalf, o.wide)
		case o.wide:
			s.Extra = several + o.count
		case m == 0:
			s.Extra = large + o.count
		default:
			s.Extra += m
		}
		n++
	}
	return slots
}

// countState returns the further state that gives the count of the first state, and the time since when
// that one has been in use.
func countState(count int64, since headgate.Instant) State {
	return State{Stamp: since, Extra: large + min(count, maxOrdinary)}
}

// round removes the fractions of a microsecond from own buckets whose stored states have no room
// for them. It rounds to the caller's disadvantage.
func (b *Bucket) round() {
	for i := range b.own {
		o := &b.own[i]
		if o.state.Extra > 0 && (o.wide || o.count <= maxOrdinary && mark(o.count, b.rate(o.count).num) == 0) {
			o.state.Stamp, o.state.Extra = o.state.Stamp+1, 0
		}
	}
}

// Kept returns what a store is to keep in the slots of a limit with the period of l and the given
// count, if no list of another count has used it.
func Kept(l *headgate.Limit, count int64, s State) [BucketSlots]State {
	return keep(count, rateAt(l, count), s)
}

// keep is Kept for a rate.
func keep(count int64, r rate, s State) (slots [BucketSlots]State) {
	if s.Used == 0 {
		return slots
	}
	switch m := mark(count, r.num); {
	case needsHalf(count, s.Used):
		slots[0], slots[highHalf] = split(s, count, several+alone, false)
	case m != 0:
		slots[0] = s
		slots[0].Extra += m
	default:
		slots[0] = s
		slots[0].Extra += several
		slots[1] = countState(count, 0)
	}
	return slots
}
