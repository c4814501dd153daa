package algorithm

import (
	"slices"

	"github.com/headgate/headgate"
)

// Bucket is a token bucket or leaky bucket that several lists of limits of a rule may share: by
// tariff, by method, by an override, or because two versions of the policy are in use at a time.
// Their limits have the same algorithm and period, but may have different counts, and so different
// rates.
//
// The bucket of all lists holds every unit that any list was admitted. It drains at the rate of the
// fastest list that has asked since the bucket was last empty. The fastest list needs no other
// bucket. Each slower list also has a bucket of its own. That bucket begins with the units that all
// lists had in use when the slower list asked, holds the units that this list is admitted, and
// drains at the list's own rate. A request must fit both buckets. Therefore:
//
//   - No list is ever admitted more than its own burst + rate × time, whatever other lists are
//     admitted meanwhile.
//   - All lists together are admitted at most the largest burst + the fastest rate × time.
//   - When one list replaces another, used units stay used, and drain at the rate of the new list
//     from then on.
//   - For a fast list, one unit of a slow list is one unit, and drains at the fast rate.
//
// A list that is alone has only the bucket of all lists. A list's own bucket ends when it has
// drained.
type Bucket struct {
	period int64
	all    State // the bucket of all lists; its Extra is a fraction at the rate of count
	count  int64 // the count of the fastest list that has asked since all was empty; 0 if all is empty
	own    []ownBucket
	// since is when all was last empty while a bucket in own was not. Units that were charged
	// before that have drained from all, perhaps faster than all drains now, so they cannot be
	// given back to it.
	since headgate.Instant
}

// ownBucket is the own bucket of a list that is slower than another list. Bucket.own is ordered by
// count.
type ownBucket struct {
	count int64
	// wide is true if the bucket also serves all faster lists without a bucket of their own. It has
	// at least as much in use as each of their buckets would have.
	wide  bool
	state State
}

const (
	// maxOwn is the maximum number of own buckets for a rule and key. If more lists are slower, two
	// lists of neighboring rates share a bucket, which drains at the slower rate.
	maxOwn = 4
	// BucketSlots is the maximum number of states that a store keeps for a Bucket: two for itself, one
	// for each own bucket, and the high halves of all of them.
	BucketSlots = 2 * (2 + maxOwn)
)

// rate returns the rate of a count.
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

// rateAt returns the rate of a list with the period of l and the given count.
func rateAt(l *headgate.Limit, count int64) rate {
	if count == l.Count {
		return rateOf(l)
	}
	return (&Bucket{period: l.Micros()}).rate(count)
}

// find returns the own bucket of a list, or the wide bucket that serves it, or nil.
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

// insert adds an own bucket for a list without one. All buckets have been advanced to now.
func (b *Bucket) insert(o ownBucket, now headgate.Instant) {
	at := 0
	for at < len(b.own) && b.own[at].count < o.count {
		at++
	}
	b.own = slices.Insert(b.own, at, o)
	if n := len(b.own); n > maxOwn {
		fast := &b.own[n-1]
		b.own[n-2].wide = true
		b.own[n-2].raise(fast.state.Used, now)
		b.own = b.own[:n-1]
	}
}

// raise makes sure that at least the given units are in use at now.
func (o *ownBucket) raise(units int64, now headgate.Instant) {
	if units >= o.state.Used {
		o.state = State{Stamp: now, Used: units}
	}
}

// Advance brings the bucket up to now for the list of limits that asks. It reports whether the
// result must be stored whatever is decided: because the clock has stepped back, as [Moved] says,
// or because the bucket has changed for this list; see ask.
func (b *Bucket) Advance(l *headgate.Limit, now headgate.Instant) (moved bool) {
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

// ask records the list that asks, and reports whether the bucket has changed. A slower list gets an
// own bucket if it has none. A faster list becomes the one whose rate the bucket of all lists has.
func (b *Bucket) ask(l *headgate.Limit, now headgate.Instant) bool {
	switch {
	case b.count == 0 || l.Count == b.count || l.Count < b.count && b.find(l.Count) != nil:
		return false
	case l.Count < b.count:
		b.insert(ownBucket{count: l.Count, state: State{Stamp: now, Used: b.all.Used}}, now)
		return true
	}
	// The list that was the fastest until now needs a bucket of its own from now on. The bucket of
	// all lists drops its fraction of a refilled unit.
	if o := b.find(b.count); o == nil {
		b.insert(ownBucket{count: b.count, state: b.all}, now)
	} else {
		o.raise(b.all.Used, now)
	}
	b.all.Stamp, b.all.Extra, b.count = now, 0, l.Count
	return true
}

// drop removes own buckets that have drained.
func (b *Bucket) drop() {
	b.own = slices.DeleteFunc(b.own, func(o ownBucket) bool { return o.state.Used == 0 })
	if len(b.own) == 0 {
		b.since = 0
	}
}

// Used returns how many units are in use for a list. For Used and all methods below, the bucket
// must have been advanced.
func (b *Bucket) Used(l *headgate.Limit) int64 {
	used := b.all.Used
	if o := b.find(l.Count); o != nil {
		used = max(used, o.state.Used)
	}
	return used
}

// Fits does for a bucket what the function Fits does for a state.
func (b *Bucket) Fits(l *headgate.Limit, cost int64) bool { return b.Used(l)+cost <= l.Capacity() }

// Charge does for a bucket what the function Charge does for a state.
func (b *Bucket) Charge(l *headgate.Limit, now headgate.Instant, cost int64) {
	if cost <= 0 {
		return
	}
	b.round()
	add := func(s *State) { s.Used += min(cost, max(0, MaxUsed(l)-s.Used)) }
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

// Refund does for a bucket what the function Refund does for a state. If the list has a bucket of
// its own, each of the two buckets gets back only units that are certain to be still in use there.
func (b *Bucket) Refund(l *headgate.Limit, now headgate.Instant, cost int64, at headgate.Instant, used int64) {
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
			if s.Used -= min(cost, s.Used); s.Used == 0 {
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

// Settle does for a bucket what the function Settle does for a state.
func (b *Bucket) Settle(l *headgate.Limit, now headgate.Instant, units int64, at headgate.Instant, used int64) {
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

// Busy returns the time until no list has units in use, if nothing else comes.
func (b *Bucket) Busy(now headgate.Instant) Micros {
	busy := drain(b.rate(b.count), b.all, now, b.all.Used)
	for i := range b.own {
		o := &b.own[i]
		busy = max(busy, drain(b.rate(o.count), o.state, now, o.state.Used))
	}
	return busy
}

// wait returns the time until no more than left units are in use for a list.
func (b *Bucket) wait(l *headgate.Limit, now headgate.Instant, left int64) Micros {
	t := drain(b.rate(b.count), b.all, now, b.all.Used-left)
	if o := b.find(l.Count); o != nil {
		t = max(t, drain(b.rate(o.count), o.state, now, o.state.Used-left))
	}
	return t
}

// Describe does for a bucket what the function Describe does for a state.
func (b *Bucket) Describe(d *headgate.Decision, l *headgate.Limit, before *Bucket, now headgate.Instant, cost int64, fits bool) {
	d.Limit, d.Allowed, d.At = l, fits, now
	d.RetryAfter, d.Delay = 0, 0
	d.Remaining, d.ResetAfter = max(0, l.Capacity()-b.Used(l)), b.wait(l, now, 0).Duration()
	switch {
	case fits && l.Algorithm == headgate.LeakyBucket:
		d.Delay = before.wait(l, now, 0).Duration()
	case fits:
	case cost > l.Capacity():
		d.RetryAfter = headgate.Never
	default:
		d.RetryAfter = before.wait(l, now, l.Capacity()-cost).Duration()
	}
}
