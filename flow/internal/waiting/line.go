// Package waiting keeps callers in line at a gate. Classes are served in order of importance, and
// the tenants of a class in turn. The memory of a line is bounded, however many callers come.
//
// # Basics
//
// A [Line] holds [Waiter] values. It is plain data, knows no clock, and never blocks. Gates call it
// under a lock of their own.
//
// Each class has a fixed number of queues. A flow (a tenant, or a key) may use a few of them, which
// its hash selects. While it waits in one of these queues, it stays there. Otherwise it takes an
// empty one, or shares the shortest if none is empty. So a flow that sends a lot fills one queue,
// two flows rarely share one, and made-up tenants cannot occupy more than all queues. The queues of
// a class are served in turn, by cost.
//
// # Caveats
//
// Classes are served strictly in order: a class waits for as long as anyone of a higher class
// waits.
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

// class is the part of a line that belongs to one class.
type class struct {
	n              int
	queues         []queue // made when the class is first used
	served         uint64  // the virtual time: the value of served of the queue that was served last
	oldest, newest *Waiter
}

// queue holds waiters in the order in which they came.
type queue struct {
	n          int
	head, tail *Waiter
	flow       uint64 // the hash of the flow that began the queue
	// served is the number of units that were served from the queue, plus the virtual time at which
	// it was last empty. It may wrap around, because only differences matter.
	served uint64
	// since is when the queue last moved, that is, when it was last empty or served a waiter that
	// had not waited for long. stands says that this was too long ago; see Stale.
	since  time.Duration
	stands bool
}

// New returns a line for up to limit waiters, with the given number of queues for each class.
func New(limit, queues int) *Line { return &Line{max: limit, queues: queues} }

// SetMax changes how many callers may wait. Those that wait already stay.
func (l *Line) SetMax(limit int) { l.max = limit }

// Len returns the number of waiters.
func (l *Line) Len() int { return l.n }

// Ahead returns how many waiters would be served before one that comes now, if none came after it.
// These are all waiters of more important classes, all in its own queue, and as many in each other
// queue of its class.
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

// Push adds w to the end of its queue. If the line is full, another waiter may have to give way:
// the newest in the longest queue of the least important class that waits. It does so if its class
// is less important than that of w, or if the class is the same and its queue is longer than that
// of w would be. Push takes it out of the line and returns it, and the caller must settle it. If no
// waiter gives way, Push does nothing and returns false.
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

// giveWay removes and returns the waiter that one of the given rank may displace, or nil. length is
// how long the queue of the new waiter would be.
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

// Remove removes w from the line.
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

// Moved records that w, which is about to be taken, did not wait for long, so its queue moves.
func (l *Line) Moved(w *Waiter, now time.Duration) { w.in.since = now }

// Stale returns a waiter of the class that has waited for too long, or nil. While a queue moves,
// its waiters may wait for the usual time. A queue that has not moved for the usual time stands
// until it is empty. Its waiters may wait only for the short time, and the newest of them is served
// first.
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

// Stands reports whether the queue that the flow would use now stands; see Stale.
func (l *Line) Stands(rank int, hash uint64) bool {
	c := &l.classes[rank]
	if c.n == 0 {
		return false
	}
	q := c.deal(hash)
	return q.n > 0 && q.stands
}

// Best returns the rank of the most important class with a waiter, or flow.Classes if there is no
// waiter.
func (l *Line) Best() int {
	for r := range l.classes {
		if l.classes[r].n > 0 {
			return r
		}
	}
	return flow.Classes
}

// Oldest returns the waiter of the class that has waited the longest, or nil.
func (l *Line) Oldest(rank int) *Waiter { return l.classes[rank].oldest }

// Turn returns the waiter of the class whose turn it is, or nil. It is in the queue that was served
// the least, and there the first one, or the last one if the queue stands. Waiters that cost more
// than room are left out.
func (l *Line) Turn(rank int, room int64) *Waiter {
	return l.classes[rank].turn(func(w *Waiter) bool { return w.Request.Units() <= room })
}

// turn is Turn among the waiters for which fits returns true.
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

// Fitting returns the waiter to serve next when used units of limit are in use, or nil if none is
// to be served. If the waiter whose turn it is fits, it is that one. Otherwise smaller waiters may
// overtake it, until they have taken limit units; from then on, units that become free are kept for
// it. So a large request delays small ones for a limited time, and small ones delay a large one by
// a limited number of units. For a request with a limit of its own, that limit counts.
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

// limit returns the limit of the waiter's request, or that of the gate if the request has none.
func (w *Waiter) limit(gate int64) int64 {
	if w.Request.Limit != 0 {
		return w.Request.Limit
	}
	return gate
}

// After returns the next waiter of the same class that came after w, or nil.
func (l *Line) After(w *Waiter) *Waiter { return w.newer }
