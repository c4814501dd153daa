package algorithm

import "github.com/headgate/headgate"

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
		return c.State.Used
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
// LoadCounter reads slot 0 and, if there can be further states, others up to BucketSlots - 1. known says
// that these are empty unless [HasSlots] is true for slot 0.
func LoadCounter(l *headgate.Limit, known bool, at func(i int) State) Counter {
	first := at(0)
	s, plain := Plain(l, first)
	switch {
	case l.Algorithm > headgate.LeakyBucket && !plain: // a sliding counter
		if high := at(highHalf); high.Stamp == s.Stamp {
			s.Used, s.Extra = s.Used&(halved-1)|high.Used*halved, s.Extra&(halved-1)|high.Extra*halved
		}
		return Counter{State: s}
	case l.Algorithm > headgate.LeakyBucket || plain && known:
		return Counter{State: s}
	}
	slots := [BucketSlots]State{first}
	if known && HasSlots(first) && first.Extra&alone != 0 {
		slots[highHalf] = at(highHalf)
		if s, count, _, ok := join(first, slots[highHalf]); ok && count == l.Count {
			return Counter{State: s}
		}
	}
	for i := 1; i < highHalf && (!known || HasSlots(first)); i++ {
		slots[i] = at(i)
		plain = plain && slots[i].Extra < marked
	}
	if plain {
		return Counter{State: s}
	}
	for i := range highHalf {
		if slots[i].Extra >= ownHalf || HasSlots(slots[i]) {
			slots[i+highHalf] = at(i + highHalf)
		}
	}
	if s, alone := unshared(l, &slots); alone {
		return Counter{State: s}
	}
	return Counter{Bucket: LoadBucket(l, &slots)}
}

// unshared returns the state of a limit for which Plain is never true, if only this list has used
// it.
func unshared(l *headgate.Limit, slots *[BucketSlots]State) (s State, alone bool) {
	if MarkOf(l) != 0 {
		return s, false
	}
	first, second := slots[0], slots[1]
	for _, other := range slots[2:highHalf] {
		if other.Extra >= marked {
			return s, false
		}
	}
	s, count, _, halves := join(first, slots[highHalf])
	switch {
	case halves:
		return s, count == l.Count && second.Extra < marked
	case first.IsZero():
		return s, second.Extra < marked
	case HasSlots(first):
		s.Extra -= several
		return s, s.Used > 0 && second.Used == 0 && l.Count <= maxOrdinary && second.Extra == large+l.Count
	case first.Extra >= marked:
		count, s.Extra = unmark(first.Extra)
		return s, count == l.Count && second.Extra < marked
	}
	return State{}, false
}

// Single returns what a store is to keep for the counter, if that is one state in the limit's own
// slot. The store has no state in the other slots then, and needs none.
func (c Counter) Single(l *headgate.Limit) (s State, single bool) {
	switch {
	case c.Bucket != nil:
		return s, false
	case l.Algorithm <= headgate.LeakyBucket && (MarkOf(l) == 0 || c.State.Used >= halved),
		l.Algorithm == headgate.SlidingCounter && (Big(l) || c.State.Used >= halved || c.State.Extra >= halved):
		return s, false
	}
	return Mark(l, c.State), true
}

// Slots returns what a store is to keep in the slots of the limit. Only the slots whose bits are set in
// changed may differ from what the store has.
func (c Counter) Slots(l *headgate.Limit) (slots [BucketSlots]State, changed uint) {
	if c.Bucket != nil {
		return c.Bucket.Slots(), 1<<BucketSlots - 1
	}
	s, single := c.Single(l)
	switch {
	case single:
		slots[0] = s
		return slots, 1
	case l.Algorithm == headgate.SlidingCounter:
		s = c.State
		if slots[0] = s; s.Used >= halved || s.Extra >= halved {
			slots[0] = State{s.Stamp, lowHalf(s.Used), lowHalf(s.Extra)}
			slots[highHalf] = State{s.Stamp, s.Used >> 31, s.Extra >> 31}
		}
		return slots, 1 | 1<<highHalf
	case l.Count > maxOrdinary:
		return keep(l.Count, rateOf(l), c.State), 1 | 1<<highHalf
	}
	return keep(l.Count, rateOf(l), c.State), 1 | 1<<1 | 1<<highHalf
}
