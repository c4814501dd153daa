package algorithm

import (
	"math"

	"github.com/headgate/headgate"
)

// Counter is the state of a limit that is not a sliding window, in the form that decisions use. Its
// methods do what the functions of this package do with a [State]. They do not change the counter
// on which they are called.
type Counter struct {
	State  State
	Bucket *Bucket // used in place of State, unless it is nil
}

// Advance brings the counter up to now. moved reports whether the result must be stored whatever is
// decided; see [Moved].
func (c Counter) Advance(l *headgate.Limit, now headgate.Instant) (advanced Counter, moved bool) {
	if c.Bucket == nil {
		s := Advance(l, c.State, now)
		return Counter{State: s}, Moved(c.State, s, now)
	}
	b := c.Bucket.Clone()
	moved = b.Advance(l, now)
	return Counter{Bucket: b}, moved
}

// Used returns how many units are in use at least, in a counter that was advanced. For a sliding
// counter, these are the units of its current window.
func (c Counter) Used(l *headgate.Limit) int64 {
	if c.Bucket == nil {
		return int64(c.State.Used)
	}
	return c.Bucket.Used(l)
}

// Fits reports whether the limit admits cost at now.
func (c Counter) Fits(l *headgate.Limit, now headgate.Instant, cost int64) bool {
	if c.Bucket == nil {
		return Fits(l, c.State, now, cost)
	}
	return c.Bucket.Fits(l, cost)
}

// Charge adds cost.
func (c Counter) Charge(l *headgate.Limit, now headgate.Instant, cost int64) Counter {
	if c.Bucket == nil {
		return Counter{State: Charge(l, c.State, now, cost)}
	}
	b := c.Bucket.Clone()
	b.Charge(l, now, cost)
	return Counter{Bucket: b}
}

// Settle charges units, or takes them back if they are negative.
func (c Counter) Settle(l *headgate.Limit, now headgate.Instant, units int64, at headgate.Instant, used int64) Counter {
	if c.Bucket == nil {
		return Counter{State: Settle(l, c.State, now, units, at, used)}
	}
	b := c.Bucket.Clone()
	b.Settle(l, now, units, at, used)
	return Counter{Bucket: b}
}

// Describe fills d with the decision about the limit. before is the counter before the charge, and
// c the counter after it. If there was no charge, they are equal.
func (c Counter) Describe(d *headgate.Decision, l *headgate.Limit, before Counter, now headgate.Instant, cost int64, fits bool) {
	if c.Bucket == nil {
		Describe(d, l, before.State, c.State, now, cost, fits)
		return
	}
	c.Bucket.Describe(d, l, before.Bucket, now, cost, fits)
}

// Expires returns the time at which the counter is fully free, given the decision that Describe has
// filled.
func (c Counter) Expires(d *headgate.Decision) headgate.Instant {
	now := d.At
	expires := plus(now, Micros(d.ResetAfter.Microseconds()))
	if c.Bucket != nil {
		expires = max(expires, plus(now, c.Bucket.Busy(now)))
	}
	return expires
}

// LoadCounter returns the counter of a limit. at returns what a store keeps in slot i of the limit.
// LoadCounter reads slot 0 and, if there can be further states, the slots 1 to BucketSlots - 1.
// known says that these are empty unless [HasSlots] is true for slot 0.
func LoadCounter(l *headgate.Limit, known bool, at func(i int) State) Counter {
	first := at(0)
	s, plain := unmarked(l, first)
	if l.Algorithm > headgate.LeakyBucket || plain && known {
		return Counter{State: s}
	}
	slots := [BucketSlots]State{first}
	for i := 1; i < BucketSlots && (!known || HasSlots(first)); i++ {
		slots[i] = at(i)
		plain = plain && slots[i].Extra < marked
	}
	if plain {
		return Counter{State: s}
	}
	if s, alone := unshared(l, &slots); alone {
		return Counter{State: s}
	}
	return Counter{Bucket: loadBucket(l, &slots)}
}

// unshared returns the state of a limit for which unmarked is never true, if only this list has used
// it.
func unshared(l *headgate.Limit, slots *[BucketSlots]State) (s State, alone bool) {
	if MarkOf(l) != 0 {
		return s, false
	}
	for _, other := range slots[2:] {
		if other.Extra >= marked {
			return s, false
		}
	}
	s = slots[0]
	switch second := slots[1]; {
	case s.IsZero() && second.Extra < marked:
		return s, true
	case HasSlots(s) && s.Used > 0 && second.Used == 0 && second.Extra == uint32(large+l.Count):
		s.Extra -= several
		return s, true
	}
	return State{}, false
}

// Slots returns what a store is to keep in the slots of the limit. Only the first n slots may
// differ from what the store has.
func (c Counter) Slots(l *headgate.Limit) (slots [BucketSlots]State, n int) {
	switch {
	case c.Bucket != nil:
		return c.Bucket.slots(), BucketSlots
	case c.State.Used == 0 && l.Algorithm <= headgate.LeakyBucket:
		return slots, 2
	}
	slots[0] = c.State
	if l.Algorithm > headgate.LeakyBucket {
		return slots, 1
	}
	if m := MarkOf(l); m != 0 {
		slots[0].Extra += m
		return slots, 1
	}
	slots[0].Extra += several
	slots[1] = countState(l.Count, 0)
	return slots, 2
}

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

// unmarked converts a state that a store keeps in the limit's slot to the form that the functions of
// this package take. It returns false if only loadBucket can interpret the state, because a list
// of another rate has used it, or because its mark has no room for a fraction.
func unmarked(l *headgate.Limit, s State) (State, bool) {
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

// MarkOf returns the number that is added to the Extra of a bucket's state that is not free, when a
// store keeps it in one slot. It is 0 for limits whose states take more.
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

// loadBucket returns the bucket of a limit. slots are the states that a store keeps under each
// [BucketSlot]; missing states are zero.
func loadBucket(l *headgate.Limit, slots *[BucketSlots]State) *Bucket {
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

// slots is the inverse of loadBucket: it returns what a store is to keep for the bucket.
func (b *Bucket) slots() (slots [BucketSlots]State) {
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
