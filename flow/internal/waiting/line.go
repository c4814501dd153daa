// Package waiting keeps callers in line at a gate: by class, and within a class in
// turn by whom they are for. What it keeps is bounded, whoever comes.
//
// # Basics
//
// A [Line] has [Waiter] values. Gates call it under a lock of their own: it is plain
// data, knows no clock, and never blocks.
//
// Each class has a fixed number of queues. A flow (a tenant, or a key) may use the few
// queues that its hash deals to it. It keeps to one of them as long as it waits there,
// takes an empty one otherwise, and shares the shortest if none is empty. So a flow
// that sends a lot fills one queue, two flows rarely share one, and made-up tenants
// can crowd out others only as far as there are queues. The queues of a class are
// served in turn by cost.
//
// # Caveats
//
// Classes are served strictly in order. A class waits as long as a higher one does.
package waiting

import (
	"time"

	"github.com/headgate/headgate/flow"
)

// hand is how many queues a flow may use.
const hand = 8

// Line is a bounded line of waiters. The zero Line is not usable; see [New].
type Line struct {
	max     int
	queues  int
	n       int
	seq     uint64
	classes [flow.Classes]class
}

// class is the part of a line that has one class.
type class struct {
	n              int
	queues         []queue // made when the class is first used
	served         uint64  // the virtual time: served of the queue that was served last
	oldest, newest *Waiter
}

// queue has waiters in the order in which they came.
type queue struct {
	n          int
	head, tail *Waiter
	flow       uint64 // whose it is
	// served is the units that were served from the queue, counted from the virtual
	// time at which it was last empty. It may wrap: only differences count.
	served uint64
	// since is when the queue last had nobody in it who had waited for long, and stands
	// that this was too long ago; see Stale.
	since  time.Duration
	stands bool
}

// New returns a line for up to limit waiters, with that many queues for each class.
func New(limit, queues int) *Line { return &Line{max: limit, queues: queues} }

// SetMax changes how many may wait. Those who wait already stay.
func (l *Line) SetMax(limit int) { l.max = limit }

// Len is how many wait.
func (l *Line) Len() int { return l.n }

// Ahead is how many would be served before a waiter that comes now, if nobody came
// after it: all of the classes that matter more, and of its own class all in its queue,
// and as many in each other queue.
func (l *Line) Ahead(rank int, hash uint64) int {
	n := 0
	for r := range rank {
		n += l.classes[r].n
	}
	c := &l.classes[rank]
	if c.n == 0 {
		return n
	}
	own := c.deal(hash)
	for i := range c.queues {
		n += min(c.queues[i].n, own.n+1)
	}
	return n
}

// Push puts w at the end of its queue. If the line is full, one has to give way: the
// newest of the longest queue of the least class that waits, if it is of a lesser
// class than w, or if it is of the same class and its queue is longer than that of w
// would be. It is returned, out of the line, to be settled by the caller. If nobody
// gives way, Push does nothing and reports false.
func (l *Line) Push(w *Waiter, hash uint64) (displaced *Waiter, ok bool) {
	c := &l.classes[w.Rank]
	if c.queues == nil {
		c.queues = make([]queue, l.queues)
	}
	q := c.deal(hash)
	if l.n >= l.max {
		if displaced = l.giveWay(w.Rank, q.n+1); displaced == nil {
			return nil, false
		}
	}
	if q.n == 0 {
		if q.flow != hash || int64(q.served-c.served) < 0 {
			q.served = c.served
		}
		q.flow, q.since, q.stands = hash, w.Since, false
	}
	l.seq++
	w.flow, w.in, w.seq = hash, q, l.seq
	if w.prev = q.tail; w.prev != nil {
		w.prev.next = w
	} else {
		q.head = w
	}
	q.tail = w
	if w.older = c.newest; w.older != nil {
		w.older.newer = w
	} else {
		c.oldest = w
	}
	c.newest = w
	q.n++
	c.n++
	l.n++
	return displaced, true
}

// deal returns the queue that a flow uses now.
func (c *class) deal(hash uint64) *queue {
	var best *queue
	x := hash
	for range hand {
		x = x*0x9e3779b97f4a7c15 + 0x7f4a7c15
		q := &c.queues[(x>>32)%uint64(len(c.queues))]
		if q.n > 0 && q.flow == hash {
			return q
		}
		if best == nil || q.n < best.n {
			best = q
		}
	}
	return best
}

// giveWay takes the waiter out of the line that a waiter of this rank may displace,
// if its queue would have length waiters with it.
func (l *Line) giveWay(rank, length int) *Waiter {
	for r := flow.Classes - 1; r >= rank; r-- {
		c := &l.classes[r]
		if c.n == 0 {
			continue
		}
		longest := &c.queues[0]
		for i := range c.queues {
			if q := &c.queues[i]; q.n > longest.n {
				longest = q
			}
		}
		if r == rank && longest.n <= length {
			return nil
		}
		w := longest.tail
		l.Remove(w)
		return w
	}
	return nil
}

// Remove takes w out of the line.
func (l *Line) Remove(w *Waiter) {
	q, c := w.in, &l.classes[w.Rank]
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.tail = w.prev
	}
	if w.older != nil {
		w.older.newer = w.newer
	} else {
		c.oldest = w.newer
	}
	if w.newer != nil {
		w.newer.older = w.older
	} else {
		c.newest = w.older
	}
	w.in, w.prev, w.next, w.older, w.newer = nil, nil, nil, nil, nil
	q.n--
	c.n--
	l.n--
}

// Take removes w, which is to be served, and charges its queue for it.
func (l *Line) Take(w *Waiter) {
	q, c := w.in, &l.classes[w.Rank]
	c.served = q.served
	q.served += uint64(w.Request.Units())
	l.Remove(w)
}

// Moved notes that w, which is to be taken, had not waited for long: its queue moves.
func (l *Line) Moved(w *Waiter, now time.Duration) { w.in.since = now }

// Stale is a waiter of the class that has waited for longer than it may, or nil. It may
// wait as usual for as long as its queue moves, now and then at least. A queue that has
// not moved for as long stands until it is empty: in it one may wait for a short time
// only, and the newest is served first.
func (l *Line) Stale(rank int, now, usual, short time.Duration) *Waiter {
	c := &l.classes[rank]
	if c.n == 0 {
		return nil
	}
	for i := range c.queues {
		q := &c.queues[i]
		if q.n == 0 {
			continue
		}
		allowed := usual
		if q.stands = q.stands || now-q.since >= usual; q.stands {
			allowed = short
		}
		if now-q.head.Since > allowed {
			return q.head
		}
	}
	return nil
}

// Stands reports whether the queue that a flow of the class would use now stands.
func (l *Line) Stands(rank int, hash uint64) bool {
	c := &l.classes[rank]
	if c.n == 0 {
		return false
	}
	q := c.deal(hash)
	return q.n > 0 && q.stands
}

// Best is the rank of the most important class that waits, or flow.Classes if nobody
// does.
func (l *Line) Best() int {
	for r := range l.classes {
		if l.classes[r].n > 0 {
			return r
		}
	}
	return flow.Classes
}

// Oldest is the waiter of the class that has waited the longest, or nil.
func (l *Line) Oldest(rank int) *Waiter { return l.classes[rank].oldest }

// Turn is the waiter of the class whose turn it is, or nil: of the queue that was
// served the least, the first one, or the last one if the queue stands. Only waiters
// that cost at most room are looked at.
func (l *Line) Turn(rank int, room int64) *Waiter {
	return l.classes[rank].turn(func(w *Waiter) bool { return w.Request.Units() <= room })
}

// turn is Turn for those waiters that fit.
func (c *class) turn(fits func(*Waiter) bool) *Waiter {
	if c.n == 0 {
		return nil
	}
	var best *Waiter
	for i := range c.queues {
		w := c.queues[i].head
		if c.queues[i].stands {
			w = c.queues[i].tail
		}
		if w == nil || !fits(w) {
			continue
		}
		if best == nil {
			best = w
			continue
		}
		d := int64(w.in.served - best.in.served)
		if d < 0 || d == 0 && w.seq < best.seq {
			best = w
		}
	}
	return best
}

// Fitting is the waiter that is to be served next where so many units of limit are in
// use, or nil if none should be. It is the one whose turn it is if that fits. Else
// smaller ones may overtake it, until limit units have done so; then what becomes free
// is kept for it. So a large request delays small ones for a while only, and small ones
// delay a large one only by so much. A request with a limit of its own goes by that.
func (l *Line) Fitting(used, limit int64) *Waiter {
	fits := func(w *Waiter) bool { return w.Request.Units() <= w.limit(limit)-used }
	var overtaken [flow.Classes]*Waiter
	for rank := range l.classes {
		c := &l.classes[rank]
		first := c.turn(func(w *Waiter) bool { return w.Request.Units() <= w.limit(limit) })
		if first == nil {
			continue
		}
		best := first
		if !fits(first) {
			overtaken[rank] = first
			best = c.turn(fits)
		}
		if best != nil {
			cost := best.Request.Units()
			for _, w := range overtaken {
				if w != nil && w.Passed+cost > w.limit(limit) {
					return nil
				}
			}
			for _, w := range overtaken {
				if w != nil {
					w.Passed += cost
				}
			}
			return best
		}
	}
	return nil
}

// limit is the limit that the waiter goes by, at a gate with the given one.
func (w *Waiter) limit(gate int64) int64 {
	if w.Request.Limit != 0 {
		return w.Request.Limit
	}
	return gate
}

// After is the next waiter of the class of w that came after it, or nil.
func (l *Line) After(w *Waiter) *Waiter { return w.newer }
