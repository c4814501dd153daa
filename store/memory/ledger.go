package memory

import (
	"container/heap"
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

var _ headgate.Ledger = (*Store)(nil)

// ledger remembers requests by their ids, in stripes. A stripe is locked before any shard.
type ledger struct {
	stripes [stripes]stripe
	most    int64        // bytes that notes may take
	bytes   atomic.Int64 // bytes that notes take
	// due is when the next note is to be forgotten or its units are to be given back, in µs;
	// math.MaxInt64 means never. It may be too early, but never too late.
	due atomic.Int64
}

const (
	stripes = 64
	// noteShare is the part of the store's memory that notes may take: a quarter.
	noteShare = 4
	// settledFor is how long a reservation is remembered after it has expired, so that a settlement
	// at the last moment can be repeated.
	settledFor = int64(time.Minute / time.Microsecond)
)

type stripe struct {
	mu    sync.Mutex // guards all fields
	notes map[string]*note
	queue queue
}

// note is what is remembered about a request. Times are in µs.
type note struct {
	id        string
	checks    []headgate.Check
	decisions []headgate.Decision
	admitted  bool
	reserved  bool // by Reserve, not by TakeOnce
	term      time.Duration
	expires   int64
	bytes     int64
	event     int64 // when the note is due in the queue
	place     int   // index in the queue

	// For a reservation only:
	reservation headgate.Reservation
	units       []int64             // the units that it was settled at, or nil; empty if it was abandoned
	settled     []headgate.Decision // the answer to the settlement
}

// queue is a heap of notes by event.
type queue []*note

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].event < q[j].event }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *queue) Push(x any) {
	n := x.(*note)
	n.place = len(*q)
	*q = append(*q, n)
}

func (q *queue) Pop() any {
	old := *q
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return n
}

func (l *ledger) init(maxBytes int64) {
	l.most = maxBytes / noteShare
	l.due.Store(math.MaxInt64)
}

func (s *Store) stripeOf(id string) *stripe {
	return &s.ledger.stripes[maphash.String(s.seed, id)%stripes]
}

// clockNow reads the store's clock. It is for callers that have not locked a shard; see timeIn.
func (s *Store) clockNow() int64 {
	if s.clock != nil {
		return s.clock()
	}
	return s.own.now()
}

// catchUp gives back the units of reservations that were not settled in time. Every operation that
// could see these units calls it first, so no timer is needed.
func (s *Store) catchUp() {
	if due := s.ledger.due.Load(); due != math.MaxInt64 && s.clockNow() >= due {
		s.sweep()
	}
}

// sweep handles all notes that are due.
func (s *Store) sweep() {
	now := s.clockNow()
	next := int64(math.MaxInt64)
	// A caller that adds a note meanwhile lowers it again.
	s.ledger.due.Store(math.MaxInt64)
	for i := range s.ledger.stripes {
		st := &s.ledger.stripes[i]
		st.mu.Lock()
		s.sweepStripe(st, now)
		if len(st.queue) > 0 {
			next = min(next, st.queue[0].event)
		}
		st.mu.Unlock()
	}
	s.ledger.lower(next)
}

// lower makes due no later than event.
func (l *ledger) lower(event int64) {
	for {
		due := l.due.Load()
		if due <= event || l.due.CompareAndSwap(due, event) {
			return
		}
	}
}

func (s *Store) sweepStripe(st *stripe, now int64) {
	for len(st.queue) > 0 && st.queue[0].event <= now {
		n := st.queue[0]
		if n.open() && n.event == n.expires {
			s.abandon(n)
			n.event = n.expires + settledFor
			heap.Fix(&st.queue, 0)
			continue
		}
		s.forget(st, n)
	}
}

func (s *Store) forget(st *stripe, n *note) {
	heap.Remove(&st.queue, n.place)
	delete(st.notes, n.id)
	s.ledger.bytes.Add(-n.bytes)
}

// open reports whether the note belongs to a reservation that has not been settled.
func (n *note) open() bool { return n.reservation.ID != "" && n.units == nil }

// abandon settles an expired reservation: each check gives its units back or keeps them charged, as
// its GiveBack says.
func (s *Store) abandon(n *note) {
	units := make([]int64, len(n.reservation.Checks))
	for i := range n.reservation.Checks {
		if c := &n.reservation.Checks[i]; !c.GiveBack {
			units[i] = c.Units()
		}
	}
	n.settled = s.charge(n, units, nil)
	n.units = []int64{} // equal to no settlement
}

// TakeOnce implements [headgate.Ledger]. Notes may take a quarter of the store's memory. If they
// do, the error wraps [headgate.ErrUnavailable].
func (s *Store) TakeOnce(_ context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	_, dst, err := s.once(terms, checks, dst, false, true)
	return dst, err
}

// Reserve implements [headgate.Ledger]. Its errors are those of TakeOnce.
func (s *Store) Reserve(_ context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	named := terms.ID != ""
	if !named {
		terms.ID = rand.Text()
	}
	return s.once(terms, checks, dst, true, named)
}

// once implements TakeOnce and Reserve. named says that the caller gave the id. A denial without
// such an id is not remembered, because the request cannot be repeated.
func (s *Store) once(terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision, reserve, named bool) (headgate.Reservation, []headgate.Decision, error) {
	var none headgate.Reservation
	if err := store.ValidateOnce(&terms, checks); err != nil {
		return none, dst, err
	}
	s.catchUp()
	st := s.stripeOf(terms.ID)
	st.mu.Lock()
	defer st.mu.Unlock()
	s.sweepStripe(st, s.clockNow())
	if n := st.notes[terms.ID]; n != nil {
		return s.again(n, &terms, checks, dst, reserve)
	}
	n := newNote(terms.ID, checks)
	n.reserved, n.term = reserve, terms.Term()
	if s.ledger.bytes.Load()+n.bytes > s.ledger.most {
		return none, dst, fmt.Errorf("%w: %w: memory: %d bytes of requests are remembered by id, and there may be %d; ask for shorter times, or give the store more memory", headgate.ErrUnavailable, headgate.ErrFull, s.ledger.bytes.Load(), s.ledger.most)
	}
	before := len(dst)
	dst = s.takeSeveral(headgate.OpTake, checks, dst)
	n.decisions = slices.Clone(dst[before:])
	if n.admitted = headgate.NewVerdict(n.decisions).Allowed; !n.admitted && !named {
		return none, dst, nil
	}
	n.expires = int64(n.decisions[0].At) + terms.Term().Microseconds()
	n.event = n.expires
	if reserve && n.admitted {
		n.reservation = store.NewReservation(n.id, headgate.Instant(n.expires), n.checks, n.decisions)
		if !n.gives() {
			n.event = n.expires + settledFor
		}
	}
	if st.notes == nil {
		st.notes = make(map[string]*note)
	}
	st.notes[n.id] = n
	heap.Push(&st.queue, n)
	s.ledger.bytes.Add(n.bytes)
	s.ledger.lower(n.event)
	return n.copyOfReservation(), dst, nil
}

// again answers a request whose id is remembered.
func (s *Store) again(n *note, terms *headgate.Terms, checks []headgate.Check, dst []headgate.Decision, reserve bool) (headgate.Reservation, []headgate.Decision, error) {
	if reserve != n.reserved || reserve && terms.Term() != n.term || !n.same(checks) {
		return headgate.Reservation{}, dst, &headgate.ConflictError{}
	}
	if reserve && n.admitted && s.clockNow() >= n.expires {
		// The note is kept only for its settlement; the units may have been given back.
		return headgate.Reservation{}, dst, headgate.ErrNoReservation
	}
	before := len(dst)
	if n.sameLimits(checks) {
		dst = append(dst, n.decisions...)
	} else {
		dst = s.takeSeveral(headgate.OpPeek, checks, dst)
		algorithm.Again(dst[before:], n.admitted)
	}
	return n.copyOfReservation(), dst, nil
}

// noteBytes is about the memory of a note itself. checkBytes and decisionBytes are about that of
// each of its checks and decisions.
const (
	noteBytes     = 320
	checkBytes    = 2 * 64
	decisionBytes = 2 * 80
)

// newNote returns a note with copies of all strings. The caller's strings may be parts of a larger
// one, such as the body of a request, which would stay in memory uncounted.
func newNote(id string, checks []headgate.Check) *note {
	n := &note{id: strings.Clone(id), checks: slices.Clone(checks)}
	n.bytes = noteBytes + int64(len(id)+len(checks)*checkBytes)
	for i := range checks {
		n.checks[i].Key = strings.Clone(checks[i].Key)
		n.bytes += int64(len(checks[i].Key) + len(checks[i].Rule.Limits())*decisionBytes)
	}
	return n
}

// gives reports whether units are given back if the reservation is not settled.
func (n *note) gives() bool {
	return slices.ContainsFunc(n.reservation.Checks, func(c headgate.Check) bool { return c.GiveBack })
}

func (n *note) copyOfReservation() headgate.Reservation {
	r := n.reservation
	r.Checks, r.Used = slices.Clone(r.Checks), slices.Clone(r.Used)
	return r
}

// same reports whether the checks are those of the note. It ignores their limits.
func (n *note) same(checks []headgate.Check) bool {
	return slices.EqualFunc(n.checks, checks, func(a, b headgate.Check) bool {
		return a.Rule.Name() == b.Rule.Name() && a.Key == b.Key && a.Units() == b.Units() &&
			(!n.reserved || a.GiveBack == b.GiveBack && max(a.Factor, 1) == max(b.Factor, 1))
	})
}

// sameLimits reports whether the checks, for which same is true, also have the note's limits.
func (n *note) sameLimits(checks []headgate.Check) bool {
	return slices.EqualFunc(n.checks, checks, func(a, b headgate.Check) bool {
		return a.Shadow == b.Shadow && (a.Rule == b.Rule || slices.Equal(a.Rule.Limits(), b.Rule.Limits()))
	})
}

// Recall implements [headgate.Ledger].
func (s *Store) Recall(_ context.Context, id string) (headgate.Reservation, error) {
	s.catchUp()
	st := s.stripeOf(id)
	st.mu.Lock()
	defer st.mu.Unlock()
	n := st.notes[id]
	if n == nil || n.reservation.ID == "" || s.clockNow() >= n.expires {
		return headgate.Reservation{}, headgate.ErrNoReservation
	}
	return n.copyOfReservation(), nil
}

// Settle implements [headgate.Ledger].
func (s *Store) Settle(_ context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.ValidateSettle(&r, units); err != nil {
		return dst, err
	}
	s.catchUp()
	st := s.stripeOf(r.ID)
	st.mu.Lock()
	defer st.mu.Unlock()
	s.sweepStripe(st, s.clockNow())
	n := st.notes[r.ID]
	switch {
	case n == nil || n.reservation.ID == "" || n.expires != int64(r.Expires): // or the id was used again
		return dst, headgate.ErrNoReservation
	case n.units != nil && slices.Equal(n.units, units):
		return append(dst, n.settled...), nil
	case n.units != nil && len(n.units) == 0: // abandoned, even if the clock was set back since
		return dst, headgate.ErrNoReservation
	case n.units != nil:
		return dst, &headgate.ConflictError{Units: units}
	case s.clockNow() >= n.expires:
		return dst, headgate.ErrNoReservation
	}
	before := len(dst)
	dst = s.charge(n, units, dst)
	n.units, n.settled = slices.Clone(units), slices.Clone(dst[before:])
	n.event = n.expires + settledFor
	heap.Fix(&st.queue, n.place)
	return dst, nil
}

// charge charges or refunds the difference between the units that the checks of a reservation were
// charged and the given units.
func (s *Store) charge(n *note, units []int64, dst []headgate.Decision) []headgate.Decision {
	checks := n.reservation.Checks
	var l locked
	s.lock(checks, &l)
	defer s.unlock(&l)
	used := n.reservation.Used
	for i := range checks {
		c := &checks[i]
		sh := s.shardOf(l.hashes[i])
		sh.reserve(countersIn(sh, s, checks, l.hashes[:len(checks)]), l.now)
		limits := len(c.Rule.Limits())
		dst = sh.settleAll(c, i, l.hashes[i], units[i]-c.Units(), used[:limits], l.now, dst)
		used = used[limits:]
	}
	return dst
}

// settleAll charges units to all limits of a check, or refunds them if they are negative. place is
// the check's index in the request. used has the units that were in use right after the charge, for
// each limit; it is nil if they are not known.
func (sh *shard) settleAll(c *headgate.Check, place int, hash uint64, units int64, used []int64, now int64, dst []headgate.Decision) []headgate.Decision {
	limits := c.Rule.Limits()
	logged := false
	for j := range limits {
		known := int64(0)
		if used != nil {
			known = used[j]
		}
		dst = append(dst, headgate.Decision{Rule: c.Rule, Check: place, Shadow: c.Shadow})
		sh.settle(&limits[j], c, hash, units, known, now, !logged, &dst[len(dst)-1])
		logged = logged || limits[j].Algorithm == headgate.SlidingWindow
	}
	return dst
}

// settle charges or refunds one limit of a check, and describes it. first says that the limit is
// the rule's first sliding window, which charges the log.
func (sh *shard) settle(l *headgate.Limit, c *headgate.Check, hash uint64, units, used, now int64, first bool, d *headgate.Decision) {
	if l.Algorithm == headgate.SlidingWindow {
		place, shared := sh.placeLog(c.Rule, hash, now)
		e := sh.table.find(place)
		sh.followClock(e, now)
		if first && units != 0 && (!shared || units > 0 && sh.fitsLog(e, l, units, now)) {
			if shared {
				sh.charging(&step{hash: place, limit: l}, now)
			}
			sh.settleLog(e, place, c, units, now)
		}
		var facts algorithm.WindowFacts
		if g := sh.log(e); g != nil {
			facts = g.Facts(l, now, 0)
		}
		facts.Describe(d, l, now, 0, false)
		d.Allowed, d.RetryAfter = true, 0
		return
	}
	st := step{limit: l}
	st.hash, st.shared = sh.place(c.Rule, hash, l.Slot(), now)
	sh.load(&st, len(c.Rule.Limits()), now)
	after := st.state
	if st.shared {
		// A key must not give back what other keys have used, and must not overdraw the counter.
		units = max(0, min(units, l.Capacity()-st.state.Used(l)))
	}
	changes := units != 0
	if changes && st.shared {
		sh.charging(&st, now)
	}
	if changes {
		after = st.state.Settle(l, now, units, int64(c.At), used)
	}
	after.Describe(d, l, st.state, now, 0, true)
	d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
	if changes {
		sh.put(&st, after, after.Expires(d))
	}
}

// fitsLog reports whether a log that keys share has room for the units.
func (sh *shard) fitsLog(e *entry, l *headgate.Limit, units, now int64) bool {
	g := sh.log(e)
	if g == nil {
		return units <= l.Capacity()
	}
	return g.Facts(l, now, units).Fits(l, units)
}

// settleLog charges units to a log whether they fit or not, or takes them back if they are
// negative.
func (sh *shard) settleLog(e *entry, place uint64, c *headgate.Check, units, now int64) {
	g := sh.log(e)
	if units < 0 {
		if g != nil {
			sh.refundLog(g, -units, int64(c.At))
		}
		return
	}
	if g != nil {
		if units = g.Owable(now, units, algorithm.NeedOf(c.Rule)); units <= 0 {
			return
		}
	}
	sh.insert(e, place)
	sh.addToLog(e, c, units, now)
}

// refundLog takes units back from a log.
func (sh *shard) refundLog(g *algorithm.Log, units, at int64) {
	before := g.Bytes()
	g.Refund(units, at)
	sh.budget.logs.Add(int64(g.Bytes() - before))
}
