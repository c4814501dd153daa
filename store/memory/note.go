package memory

import (
	"container/list"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

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
