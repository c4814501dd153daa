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

// mark returns the number that is added to a fraction to record its count. It is 0 if the sum has
// no room for both.
func mark(count, num int64) uint32 {
	switch {
	case count <= smallCount:
		return uint32(marked + count*(count-1)/2)
	case num == 1:
		return uint32(large + count)
	}
	return 0
}

// unmark is the inverse of mark. It also returns the fraction. extra must be marked or more, and
// must not mean several.
func unmark(extra uint32) (count int64, fraction uint32) {
	if extra >= large {
		return int64(extra - large), 0
	}
	n := int64(extra - marked)
	count = int64(math.Sqrt(float64(8*n+1))+1) / 2
	for count*(count-1)/2 > n {
		count--
	}
	for count*(count+1)/2 <= n {
		count++
	}
	return count, uint32(n - count*(count-1)/2)
}

// Plain converts a state that a store keeps in the limit's slot to the form that the functions of
// this package take. It returns false if only [LoadBucket] can interpret the state, because a list
// of another rate has used it, or because its mark has no room for a fraction.
func Plain(l *headgate.Limit, s State) (State, bool) {
	if l.Algorithm > headgate.LeakyBucket {
		return s, true
	}
	num, _ := l.Rate()
	m := mark(l.Count, num)
	if s.Extra >= marked {
		s.Extra -= m // otherwise the state is free, or was written by a program without marks
		return s, m != 0 && int64(s.Extra) < num
	}
	return s, m != 0
}

// Mark is the inverse of [Plain]: it returns what a store keeps for a state for which Plain is
// true.
func Mark(l *headgate.Limit, s State) State {
	if l.Algorithm <= headgate.LeakyBucket && s.Used > 0 {
		num, _ := l.Rate()
		s.Extra += mark(l.Count, num)
	}
	return s
}

// MarkOf returns the number that Mark adds to the Extra of a state that is not free. It is 0 for
// limits for which Plain is never true.
func MarkOf(l *headgate.Limit) uint32 {
	num, _ := l.Rate()
	return mark(l.Count, num)
}

// HasSlots reports whether s, the state in the limit's own slot, says that the store keeps further
// states of the bucket. If the store has no state in the limit's own slot, there may be further
// states too, unless the store can rule that out.
func HasSlots(s State) bool { return s.Extra >= several && s.Extra < large }

// BucketSlot returns the slot of state i of a bucket. State 0 is in the limit's own slot.
func BucketSlot(l *headgate.Limit, i int) uint64 { return l.Slot() | uint64(i)<<48 }

// LoadBucket returns the bucket of a limit. slots are the states that a store keeps under each
// [BucketSlot]; missing states are zero.
func LoadBucket(l *headgate.Limit, slots *[BucketSlots]State) *Bucket {
	b := &Bucket{period: l.Micros(), all: slots[0], count: l.Count}
	switch extra := slots[0].Extra; {
	case extra < marked: // written by a program without marks
	case HasSlots(slots[0]):
		b.all.Extra -= several
	default:
		b.count, b.all.Extra = unmark(extra)
	}
	for _, s := range slots[1:] {
		switch {
		case s.Extra < marked:
		case s.Used == 0:
			if HasSlots(slots[0]) {
				b.count, _ = unmark(s.Extra)
				b.since = s.Stamp
			}
		case HasSlots(s):
			o := ownBucket{count: int64(s.Extra - several), wide: true, state: s}
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
	slots[0] = b.all
	r := b.rate(b.count)
	if len(b.own) == 0 {
		if b.all.Used == 0 {
			return slots
		}
		if m := mark(b.count, r.num); m != 0 {
			slots[0].Extra += m
			return slots
		}
	}
	slots[0].Extra += several
	n := 1
	if b.all.Used > 0 {
		slots[n] = countState(b.count, b.since)
		n++
	}
	for _, o := range b.own {
		s := &slots[n]
		n++
		*s = o.state
		switch m := mark(o.count, b.rate(o.count).num); {
		case o.wide:
			s.Extra = uint32(several + o.count)
		case m == 0:
			s.Extra = uint32(large + o.count)
		default:
			s.Extra += m
		}
	}
	return slots
}

// countState returns the further state that gives the count of the first state, and the time since when
// that one has been in use.
func countState(count int64, since headgate.Instant) State {
	return State{Stamp: since, Extra: uint32(large + count)}
}

// round removes the fractions of a microsecond from own buckets whose stored states have no room
// for them. It rounds to the caller's disadvantage.
func (b *Bucket) round() {
	for i := range b.own {
		o := &b.own[i]
		if o.state.Extra > 0 && (o.wide || mark(o.count, b.rate(o.count).num) == 0) {
			o.state.Stamp, o.state.Extra = o.state.Stamp+1, 0
		}
	}
}

// Kept returns what a store is to keep in the slots of a limit with the period of l and the given
// count, if no list of another count has used it. Only the first n slots are not empty.
func Kept(l *headgate.Limit, count int64, s State) (slots [BucketSlots]State, n int) {
	if s.Used == 0 {
		return slots, 0
	}
	slots[0] = s
	if m := mark(count, rateAt(l, count).num); m != 0 {
		slots[0].Extra += m
		return slots, 1
	}
	slots[0].Extra += several
	slots[1] = countState(count, 0)
	return slots, 2
}
