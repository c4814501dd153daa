package memory

import (
	"container/heap"
	"container/list"
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

// ledger remembers requests by their ids, in stripes. A stripe is locked before any shard, and before
// spent.
type ledger struct {
	stripes [stripes]stripe
	most    int64        // bytes that notes may take
	bytes   atomic.Int64 // bytes that notes take
	spent   spent
	// due is the instant at which the next note must be handled: its units are given back, or it is
	// forgotten. It is never if no note is due. It may be too early, but not too late.
	due atomic.Int64
}

const (
	stripes = 64
	// noteShare is the part of the store's memory that notes may take: a quarter.
	noteShare  = 4
	settledFor = headgate.Instant(store.SettledFor / time.Microsecond)
	repeatFor  = headgate.Instant(store.RepeatFor / time.Microsecond)
	never      = math.MaxInt64
)

type stripe struct {
	mu    sync.Mutex // guards all fields
	notes map[string]*note
	queue queue
}

func (l *ledger) init(maxBytes int64) {
	l.most = maxBytes / noteShare
	l.due.Store(never)
}

func (s *Store) stripeOf(id string) *stripe {
	return &s.ledger.stripes[maphash.String(s.seed, id)%stripes]
}

// catchUp gives back the units of reservations that were not settled in time. Every operation that
// could see these units calls it first, so no timer is needed.
func (s *Store) catchUp() {
	if due := s.ledger.due.Load(); due != never {
		s.catchUpBy(due)
	}
}

// catchUpBy is catchUp when a note is due at a given time. It has a function of its own so that
// catchUp, which rarely has anything to do, is inlined.
func (s *Store) catchUpBy(due int64) {
	if int64(s.clockNow()) >= due {
		s.sweep()
	}
}

// sweep handles all notes that are due.
func (s *Store) sweep() {
	now := s.clockNow()
	next := headgate.Instant(never)
	// A caller that adds a note meanwhile lowers it again.
	s.ledger.due.Store(never)
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
func (l *ledger) lower(event headgate.Instant) {
	for {
		due := l.due.Load()
		if due <= int64(event) || l.due.CompareAndSwap(due, int64(event)) {
			return
		}
	}
}

func (s *Store) sweepStripe(st *stripe, now headgate.Instant) {
	for len(st.queue) > 0 && st.queue[0].event <= now {
		n := st.queue[0]
		if n.open() && n.event == n.expires {
			s.abandon(n)
			if n.named {
				n.event = n.expires + settledFor
				heap.Fix(&st.queue, 0)
				continue
			}
		}
		s.forget(st, n)
	}
}

func (s *Store) forget(st *stripe, n *note) {
	heap.Remove(&st.queue, n.place)
	delete(st.notes, n.id)
	s.ledger.spent.remove(n)
	s.ledger.bytes.Add(-n.bytes)
}

// spare makes room for a note by forgetting those that can be spared. It begins before all room is
// taken, because other callers add notes at the same time. The caller must hold no lock.
func (s *Store) spare(bytes int64) {
	l := &s.ledger
	for l.bytes.Load()+bytes > l.most-l.most/stripes {
		n := l.spent.first()
		if n == nil {
			return
		}
		st := s.stripeOf(n.id)
		st.mu.Lock()
		if st.notes[n.id] == n { // no other caller has forgotten it since
			s.forget(st, n)
		}
		st.mu.Unlock()
	}
}

// abandon settles an expired reservation: each check gives its units back or keeps them charged, as
// its GiveBack says.
func (s *Store) abandon(n *note) {
	units := make([]int64, len(n.reservation.Checks))
	for i := range n.reservation.Checks {
		if c := &n.reservation.Checks[i]; !c.GiveBack {
			units[i] = c.Units()
		}
	}
	n.settled = s.settle(&n.reservation, units, nil)
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

// once implements TakeOnce and Reserve. named says that the caller gave the id. Without such an id
// only reservations are remembered, because the request cannot be repeated.
func (s *Store) once(terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision, reserve, named bool) (headgate.Reservation, []headgate.Decision, error) {
	var none headgate.Reservation
	if err := store.ValidateOnce(&terms, checks); err != nil {
		return none, dst, err
	}
	s.catchUp()
	s.spare(bytesOf(terms.ID, checks))
	st := s.stripeOf(terms.ID)
	st.mu.Lock()
	defer st.mu.Unlock()
	s.sweepStripe(st, s.clockNow())
	if n := st.notes[terms.ID]; n != nil {
		return s.again(n, &terms, checks, dst, reserve)
	}
	n := newNote(terms.ID, checks)
	n.named, n.reserved, n.term = named, reserve, terms.Term()
	if s.ledger.bytes.Load()+n.bytes > s.ledger.most {
		return none, dst, fmt.Errorf("%w: %w: memory: %d bytes of requests are remembered by id, and there may be %d; ask for shorter times, or give the store more memory", headgate.ErrUnavailable, headgate.ErrFull, s.ledger.bytes.Load(), s.ledger.most)
	}
	before := len(dst)
	dst = s.takeSeveral(headgate.OpTake, checks, dst)
	n.decisions = slices.Clone(dst[before:])
	n.admitted = headgate.NewVerdict(n.decisions).Allowed
	at, term := n.decisions[0].At, headgate.Instant(terms.Term().Microseconds())
	n.expires = s.own.wall.Load().read(at) + term
	n.event = n.expires
	if reserve && n.admitted {
		n.reservation = store.NewReservation(n.id, at+term, n.checks, n.decisions)
		if named && !n.gives() {
			n.event = n.expires + settledFor
		}
	}
	if !named && n.reservation.ID == "" {
		return none, dst, nil
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
	case n == nil || n.reservation.ID == "" || n.reservation.Expires != r.Expires: // or the id was used again
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
	dst = s.settle(&n.reservation, units, dst)
	n.units, n.settled = slices.Clone(units), slices.Clone(dst[before:])
	n.event = n.expires + settledFor
	if !n.named {
		n.event = s.clockNow() + repeatFor
		s.ledger.spent.add(n)
	}
	heap.Fix(&st.queue, n.place)
	s.ledger.lower(n.event)
	return dst, nil
}

// note is what is remembered about a request.
type note struct {
	id        string
	checks    []headgate.Check
	decisions []headgate.Decision
	admitted  bool
	named     bool // the caller gave the id
	reserved  bool // by Reserve, not by TakeOnce
	term      time.Duration
	expires   headgate.Instant
	bytes     int64
	event     headgate.Instant // when the note is due in the queue
	place     int              // index in the queue

	// For a reservation only:
	reservation headgate.Reservation
	units       []int64             // the units that it was settled at, or nil; empty if it was abandoned
	settled     []headgate.Decision // the answer to the settlement
	spent       *list.Element       // its place among the spent ones, or nil
}

// queue is a heap of notes by event.
type queue []*note

func (q queue) Len() int { return len(q) }

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

// spent has the notes that can be spared, the first to be settled at the front: settled reservations
// whose id the store has made up. Without its note, settling such a reservation again is refused.
// Nobody repeats the reservation itself, because its id came with the answer.
type spent struct {
	mu   sync.Mutex
	list list.List
}

func (s *spent) first() *note {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.list.Front(); e != nil {
		return e.Value.(*note)
	}
	return nil
}

func (s *spent) add(n *note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.spent = s.list.PushBack(n)
}

// remove removes a note if it is there. The caller holds the lock of the note's stripe.
func (s *spent) remove(n *note) {
	if n.spent == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list.Remove(n.spent)
}

// open reports whether the note belongs to a reservation that has not been settled.
func (n *note) open() bool { return n.reservation.ID != "" && n.units == nil }

// noteBytes is about the memory of a note itself. checkBytes and decisionBytes are about that of
// each of its checks and decisions.
const (
	noteBytes     = 400
	checkBytes    = 2 * 64
	decisionBytes = 2 * 80
)

// newNote returns a note with copies of all strings. The caller's strings may be parts of a larger
// one, such as the body of a request, which would stay in memory uncounted.
func newNote(id string, checks []headgate.Check) *note {
	n := &note{id: strings.Clone(id), checks: slices.Clone(checks), bytes: bytesOf(id, checks)}
	for i := range checks {
		n.checks[i].Key = strings.Clone(checks[i].Key)
	}
	return n
}

// bytesOf is about the memory of such a note.
func bytesOf(id string, checks []headgate.Check) int64 {
	bytes := noteBytes + len(id) + len(checks)*checkBytes
	for i := range checks {
		bytes += len(checks[i].Key) + len(checks[i].Rule.Limits())*decisionBytes
	}
	return int64(bytes)
}

// gives reports whether any check gives its units back if the reservation is not settled.
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
