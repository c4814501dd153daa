package algorithm

import "github.com/headgate/headgate"

// Counter is what a store holds of a limit that is no sliding window, as a decision takes it. Its
// methods do what the functions of this package do with a [State]. They leave what they are called
// on as it is.
type Counter struct {
	State  State
	Bucket *Bucket // instead of State, unless it is nil
}

// Advance brings the counter up to now. moved says that the result must be stored whatever
// is decided; see [Moved].
func (c Counter) Advance(l *headgate.Limit, now int64) (advanced Counter, moved bool) {
	if c.Bucket == nil {
		s := Advance(l, c.State, now)
		return Counter{State: s}, Moved(c.State, s, now)
	}
	b := c.Bucket.Clone()
	moved = b.Advance(l, now)
	return Counter{Bucket: b}, moved
}

// Used is how many units are in use at least, in a counter that was advanced. Of a sliding counter
// they are those of its current window.
func (c Counter) Used(l *headgate.Limit) int64 {
	if c.Bucket == nil {
		return int64(c.State.Used)
	}
	return c.Bucket.Used(l)
}

// Fits reports whether the limit admits cost at now.
func (c Counter) Fits(l *headgate.Limit, now, cost int64) bool {
	if c.Bucket == nil {
		return Fits(l, c.State, now, cost)
	}
	return c.Bucket.Fits(l, cost)
}

// Charge adds cost.
func (c Counter) Charge(l *headgate.Limit, now, cost int64) Counter {
	if c.Bucket == nil {
		return Counter{State: Charge(l, c.State, now, cost)}
	}
	b := c.Bucket.Clone()
	b.Charge(l, now, cost)
	return Counter{Bucket: b}
}

// Settle charges units more, or takes as many back if they are negative.
func (c Counter) Settle(l *headgate.Limit, now, units, at, used int64) Counter {
	if c.Bucket == nil {
		return Counter{State: Settle(l, c.State, now, units, at, used)}
	}
	b := c.Bucket.Clone()
	b.Settle(l, now, units, at, used)
	return Counter{Bucket: b}
}

// Refund takes back cost units.
func (c Counter) Refund(l *headgate.Limit, now, cost, at, used int64) Counter {
	if cost <= 0 {
		return c
	}
	return c.Settle(l, now, -cost, at, used)
}

// Describe fills d with what there is to say of the limit when the counter was before, and is
// this one after the charge, if there was one.
func (c Counter) Describe(d *headgate.Decision, l *headgate.Limit, before Counter, now, cost int64, fits bool) {
	if c.Bucket == nil {
		Describe(d, l, before.State, c.State, now, cost, fits)
		return
	}
	c.Bucket.Describe(d, l, before.Bucket, now, cost, fits)
}

// Expires is when the counter is fully free, given the decision that Describe has filled.
func (c Counter) Expires(d *headgate.Decision) int64 {
	now := int64(d.At)
	expires := now + d.ResetAfter.Microseconds()
	if c.Bucket != nil {
		expires = max(expires, now+c.Bucket.Busy(now))
	}
	return expires
}

// LoadCounter returns the counter of a limit. at returns what a store keeps in the slots of
// the limit: it is asked for the first, and for others, from 1 to BucketSlots - 1, if there can
// be any. known says that these are empty unless the first one tells of them, as [HasSlots] says.
func LoadCounter(l *headgate.Limit, known bool, at func(i int) State) Counter {
	first := at(0)
	s, plain := Plain(l, first)
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
	return Counter{Bucket: LoadBucket(l, &slots)}
}

// unshared returns the state of a limit for which Plain is never true, if no other list has used it.
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
	switch told := slots[1]; {
	case s.IsZero() && told.Extra < marked:
		return s, true
	case HasSlots(s) && s.Used > 0 && told.Used == 0 && told.Extra == uint32(large+l.Count):
		s.Extra -= several
		return s, true
	}
	return State{}, false
}

// Single returns what a store is to keep of the counter if that is one state in the limit's own slot,
// and nothing in the others, where nothing is kept either.
func (c Counter) Single(l *headgate.Limit) (s State, single bool) {
	if c.Bucket != nil || l.Algorithm <= headgate.LeakyBucket && MarkOf(l) == 0 {
		return s, false
	}
	return Mark(l, c.State), true
}

// Slots returns what a store is to keep in the slots of the limit, and how many of them may
// differ from what is kept there.
func (c Counter) Slots(l *headgate.Limit) (slots [BucketSlots]State, n int) {
	if c.Bucket != nil {
		return c.Bucket.Slots(), BucketSlots
	}
	s, single := c.Single(l)
	if single {
		slots[0] = s
		return slots, 1
	}
	if c.State.Used > 0 {
		slots[0], slots[1] = c.State, told(l.Count, 0)
		slots[0].Extra += several
	}
	return slots, 2
}
