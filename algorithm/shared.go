package algorithm

import (
	"math"
	"slices"

	"github.com/headgate/headgate"
)

// Bucket is a token bucket or leaky bucket that several lists of limits of a rule may share:
// by tariff, by method, by an override, or because two versions of the policy are in use at a
// time. Their limits have the same algorithm and period and, perhaps, different counts, and so
// different rates.
//
// The bucket of all lists holds every unit that any of them was admitted. It drains at the rate
// of the fastest list that has asked since the bucket was last empty. That list needs nothing
// else. Each slower list has, besides, a bucket of its own. It begins with what all had in use
// when the list asked, holds the units that the list is admitted, and drains at the list's own
// rate. A request must fit both. Therefore:
//
//   - No list is ever admitted more than its own burst + rate × time, whatever is admitted by
//     others meanwhile.
//   - All lists together are admitted at most the largest burst + the fastest rate × time.
//   - What is used stays used when a list takes the place of another one, and from then on it
//     drains at the rate of the new list.
//   - For a fast list one unit of a slow one is one unit, and drains at the fast rate.
//
// A list that has the key for itself has the bucket of all and no other, and a bucket of its own
// ends when it has drained.
type Bucket struct {
	period int64
	all    State // its Extra is that of a limit of count, as are those of own
	count  int64 // of the fastest list that has asked since all was empty, or 0 if all is empty
	own    []ownBucket
	// since is when all was empty last, if one of own was not. What was charged before that has
	// drained from all, perhaps faster than all drains now, and cannot be given back to it.
	since int64
}

// ownBucket is that of one list which is slower than another one, in the order of counts.
type ownBucket struct {
	count int64
	// wide is true if the bucket is also that of all faster lists that have none. It has at
	// least as much in use as each of their own would have.
	wide  bool
	state State
}

const (
	// maxOwn is how many lists of a rule and key can have buckets of their own at a time. If
	// there are more, two of neighboring rates share one, which drains at the slower rate.
	maxOwn = 4
	// BucketSlots is how many states a store keeps of a Bucket at most.
	BucketSlots = 2 + maxOwn
)

// A state that a store keeps of a bucket says in its Extra whose rate it has. Programs that know
// nothing of that take an Extra that is too large for a fraction for the largest one.
const (
	// marked is where the numbers begin of counts up to smallCount, with room for the
	// fractions that each count can have. No fraction is as large.
	marked = 1 << 30
	// smallCount is the largest count whose numbers end before several.
	smallCount = 46_340
	// several and a fraction stand in the bucket of all lists if there are further states.
	// One that has nothing in use tells its count. In another state several and a count mean
	// that it is wide. Neither has a fraction.
	several = 1 << 31
	// large is added to a count, and there is no fraction.
	large = 3 << 30
)

// mark is added to a fraction to say of what count it is, if there is room for both. It is 0
// if there is none.
func mark(count, num int64) uint32 {
	switch {
	case count <= smallCount:
		return uint32(marked + count*(count-1)/2)
	case num == 1:
		return uint32(large + count)
	}
	return 0
}

// unmark is the inverse of mark, for numbers from marked on that are not several. It also returns
// the fraction.
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

// Plain returns the state that a store keeps in the limit's slot as the functions of this
// package take it. It reports false if only [LoadBucket] can tell what the state means:
// a list of another rate has used it, or its mark has no room for a fraction.
func Plain(l *headgate.Limit, s State) (State, bool) {
	if l.Algorithm > headgate.LeakyBucket {
		return s, true
	}
	num, _ := l.Rate()
	m := mark(l.Count, num)
	if s.Extra >= marked {
		s.Extra -= m // else the state is free, or of a program that has no marks
		return s, m != 0 && int64(s.Extra) < num
	}
	return s, m != 0
}

// Mark returns what a store keeps of a state for which [Plain] is true.
func Mark(l *headgate.Limit, s State) State {
	if l.Algorithm <= headgate.LeakyBucket && s.Used > 0 {
		num, _ := l.Rate()
		s.Extra += mark(l.Count, num)
	}
	return s
}

// MarkOf is what Mark adds to the Extra of a state that is not free. It is 0 for limits of which
// Plain is never true.
func MarkOf(l *headgate.Limit) uint32 {
	num, _ := l.Rate()
	return mark(l.Count, num)
}

// HasSlots reports whether a store may keep further states of the bucket besides this one, which is
// that of the limit's own slot. It may if that is missing, too, unless the store knows better.
func HasSlots(s State) bool { return s.Extra >= several && s.Extra < large }

// BucketSlot names a state of a bucket: 0 is that of the limit itself.
func BucketSlot(l *headgate.Limit, i int) uint64 { return l.Slot() | uint64(i)<<48 }

// LoadBucket returns the bucket of a limit. slots are what a store keeps of it, each under its
// [BucketSlot], or zero.
func LoadBucket(l *headgate.Limit, slots *[BucketSlots]State) *Bucket {
	b := &Bucket{period: l.Micros(), all: slots[0], count: l.Count}
	switch extra := slots[0].Extra; {
	case extra < marked: // of a program that has no marks
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

// Slots returns what a store is to keep of the bucket, the inverse of LoadBucket.
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
		slots[n] = told(b.count, b.since)
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

// told is the further state that says of what count the first one is, and since when.
func told(count, since int64) State { return State{Stamp: since, Extra: uint32(large + count)} }

// round takes the fractions of a microsecond off the states of own buckets that have no room for
// them, to the caller's disadvantage.
func (b *Bucket) round() {
	for i := range b.own {
		o := &b.own[i]
		if o.state.Extra > 0 && (o.wide || mark(o.count, b.rate(o.count).num) == 0) {
			o.state.Stamp, o.state.Extra = o.state.Stamp+1, 0
		}
	}
}

// rate is that of a count.
func (b *Bucket) rate(count int64) rate {
	x, y := count, b.period
	for y != 0 {
		x, y = y, x%y
	}
	if x == 0 {
		return rate{1, 1}
	}
	return rate{count / x, b.period / x}
}

// find returns the own bucket of a list, which may be a wide one, or nil.
func (b *Bucket) find(count int64) *ownBucket {
	var found *ownBucket
	for i := range b.own {
		o := &b.own[i]
		if o.count == count || o.wide && o.count < count {
			found = o
		}
	}
	return found
}

// insert adds an own bucket of a list that has none, to buckets that were advanced to now.
func (b *Bucket) insert(o ownBucket, now int64) {
	at := 0
	for at < len(b.own) && b.own[at].count < o.count {
		at++
	}
	b.own = slices.Insert(b.own, at, o)
	if n := len(b.own); n > maxOwn {
		fast := &b.own[n-1]
		b.own[n-2].wide = true
		b.own[n-2].raise(int64(fast.state.Used), now)
		b.own = b.own[:n-1]
	}
}

// raise sees to it that at least so many units are in use at now.
func (o *ownBucket) raise(units, now int64) {
	if units >= int64(o.state.Used) {
		o.state = State{Stamp: now, Used: uint32(units)}
	}
}

// Advance brings the bucket up to now for a list of limits that asks, and reports whether the
// result must be stored whatever is decided: because the clock has stepped back, as [Moved] says, or
// because the list is faster than all that have asked before.
func (b *Bucket) Advance(l *headgate.Limit, now int64) (moved bool) {
	if b.all.Used > 0 {
		before := b.all
		b.all = advanceBucket(b.rate(b.count), before, now)
		if moved = Moved(before, b.all, now); b.all.Used == 0 {
			b.count = 0
		}
	}
	for i := range b.own {
		before := b.own[i].state
		b.own[i].state = advanceBucket(b.rate(b.own[i].count), before, now)
		moved = moved || Moved(before, b.own[i].state, now)
	}
	b.drop()
	moved = b.ask(l, now) || moved
	if moved {
		b.round()
	}
	return moved
}

// ask takes note of the list that asks, and reports whether that changes anything.
func (b *Bucket) ask(l *headgate.Limit, now int64) bool {
	switch {
	case b.count == 0 || l.Count == b.count || l.Count < b.count && b.find(l.Count) != nil:
		return false
	case l.Count < b.count:
		b.insert(ownBucket{count: l.Count, state: State{Stamp: now, Used: b.all.Used}}, now)
		return true
	}
	// What was the fastest list until now needs a bucket of its own from now on. A part of
	// a unit that is refilled by now is not counted in the other.
	if o := b.find(b.count); o == nil {
		b.insert(ownBucket{count: b.count, state: b.all}, now)
	} else {
		o.raise(int64(b.all.Used), now)
	}
	b.all.Stamp, b.all.Extra, b.count = now, 0, l.Count
	return true
}

// drop ends own buckets that have drained.
func (b *Bucket) drop() {
	b.own = slices.DeleteFunc(b.own, func(o ownBucket) bool { return o.state.Used == 0 })
	if len(b.own) == 0 {
		b.since = 0
	}
}

// Used is how many units are in use for a list. The bucket must have been advanced, as for all
// that follows.
func (b *Bucket) Used(l *headgate.Limit) int64 {
	used := int64(b.all.Used)
	if o := b.find(l.Count); o != nil {
		used = max(used, int64(o.state.Used))
	}
	return used
}

// Fits is the function Fits for a bucket.
func (b *Bucket) Fits(l *headgate.Limit, cost int64) bool { return b.Used(l)+cost <= l.Capacity() }

// Charge is the function Charge for a bucket.
func (b *Bucket) Charge(l *headgate.Limit, now, cost int64) {
	if cost <= 0 {
		return
	}
	b.round()
	add := func(s *State) { s.Used += uint32(min(cost, headgate.MaxCount-int64(s.Used))) }
	o := b.find(l.Count)
	if b.all.Used == 0 {
		b.all, b.count, b.since = State{Stamp: now}, l.Count, 0
		if len(b.own) > 0 {
			b.since = now
		}
	}
	add(&b.all)
	if o != nil {
		add(&o.state)
	}
}

// Refund is the function Refund for a bucket. A list that has a bucket of its own is given back
// of each of the two what is certain to be in use still.
func (b *Bucket) Refund(l *headgate.Limit, now, cost, at, used int64) {
	if cost <= 0 {
		return
	}
	o := b.find(l.Count)
	switch {
	case o != nil:
		used = cost
	case used == 0:
		used = max(cost, l.Capacity())
	}
	back := func(r rate, s *State) {
		switch {
		case s.Used == 0:
		case at != 0:
			*s = refundBucket(r, *s, now, cost, at, used)
		default:
			if s.Used -= uint32(min(cost, int64(s.Used))); s.Used == 0 {
				*s = State{}
			}
		}
	}
	b.round()
	if o != nil {
		back(b.rate(o.count), &o.state)
	}
	if at == 0 || at >= b.since {
		back(b.rate(b.count), &b.all)
	}
	if b.all.Used == 0 {
		b.count = 0
	}
	b.drop()
	b.ask(l, now)
	b.round()
}

// Settle is the function Settle for a bucket.
func (b *Bucket) Settle(l *headgate.Limit, now, units, at, used int64) {
	if units < 0 {
		b.Refund(l, now, -units, at, used)
	} else {
		b.Charge(l, now, units)
	}
}

// Clone returns a bucket that shares no memory with this one.
func (b *Bucket) Clone() *Bucket {
	c := *b
	c.own = slices.Clone(b.own)
	return &c
}

// Busy is how long units are in use of the bucket if nothing else comes, in µs: those of any list.
func (b *Bucket) Busy(now int64) int64 {
	busy := drain(b.rate(b.count), b.all, now, int64(b.all.Used))
	for i := range b.own {
		o := &b.own[i]
		busy = max(busy, drain(b.rate(o.count), o.state, now, int64(o.state.Used)))
	}
	return busy
}

// wait is the time until no more than left units are in use for a list.
func (b *Bucket) wait(l *headgate.Limit, now, left int64) int64 {
	t := drain(b.rate(b.count), b.all, now, int64(b.all.Used)-left)
	if o := b.find(l.Count); o != nil {
		t = max(t, drain(b.rate(o.count), o.state, now, int64(o.state.Used)-left))
	}
	return t
}

// Describe is the function Describe for a bucket.
func (b *Bucket) Describe(d *headgate.Decision, l *headgate.Limit, before *Bucket, now, cost int64, fits bool) {
	d.Limit, d.Allowed, d.At = l, fits, headgate.Instant(now)
	d.RetryAfter, d.Delay = 0, 0
	d.Remaining, d.ResetAfter = max(0, l.Capacity()-b.Used(l)), micros(b.wait(l, now, 0))
	switch {
	case fits && l.Algorithm == headgate.LeakyBucket:
		d.Delay = micros(before.wait(l, now, 0))
	case fits:
	case cost > l.Capacity():
		d.RetryAfter = headgate.Never
	default:
		d.RetryAfter = micros(before.wait(l, now, l.Capacity()-cost))
	}
}
