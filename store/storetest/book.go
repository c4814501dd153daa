package storetest

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// book is the plainest way to remember requests: everything in one map, under the
// lock of the store that it is of, and forgotten never. Expired notes answer as if
// they were not there.
type book struct {
	mu    sync.Mutex // of the whole store
	notes map[string]*booked
	order []string
	now   func() int64
	take  func(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) []headgate.Decision
	// settle has for each check the units to charge, negative to give back, and
	// what was in use of each limit after the first charge.
	settle func(checks []headgate.Check, units [][]int64, dst []headgate.Decision) []headgate.Decision
}

func newBook(now func() int64) book {
	return book{notes: map[string]*booked{}, now: now}
}

type booked struct {
	checks      []headgate.Check
	decisions   []headgate.Decision
	admitted    bool
	reserved    bool
	chosen      bool // the caller gave the id
	term        time.Duration
	expires     int64
	forgotten   int64
	reservation headgate.Reservation
	used        [][]int64
	units       []int64
	settled     []headgate.Decision
	abandoned   bool
}

// catchUp gives back what has expired and drops what is forgotten.
func (b *book) catchUp() {
	now := b.now()
	for _, id := range b.order {
		n := b.notes[id]
		if n == nil {
			continue
		}
		if n.reservation.ID != "" && n.units == nil && !n.abandoned && now >= n.expires {
			n.abandoned = true
			units := make([]int64, len(n.reservation.Checks))
			gives := false
			for i, c := range n.reservation.Checks {
				if units[i] = c.Units(); c.GiveBack {
					units[i], gives = 0, true
				}
			}
			if gives {
				b.change(n, units, nil)
			}
		}
		if now >= n.forgotten {
			delete(b.notes, id)
		}
	}
	b.order = slices.DeleteFunc(b.order, func(id string) bool { return b.notes[id] == nil })
}

func (b *book) change(n *booked, units []int64, dst []headgate.Decision) []headgate.Decision {
	all := make([][]int64, len(units))
	for i, c := range n.reservation.Checks {
		all[i] = append([]int64{units[i] - c.Units()}, n.used[i]...)
	}
	return b.settle(n.reservation.Checks, all, dst)
}

func (b *book) once(terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision, reserve, chosen bool) (headgate.Reservation, []headgate.Decision, error) {
	if n := b.notes[terms.ID]; n != nil {
		same := slices.EqualFunc(n.checks, checks, func(x, y headgate.Check) bool {
			return x.Rule.Name() == y.Rule.Name() && x.Key == y.Key && x.Units() == y.Units() &&
				(!reserve || x.GiveBack == y.GiveBack && max(x.Factor, 1) == max(y.Factor, 1))
		})
		if !same || reserve != n.reserved || reserve && terms.Term() != n.term {
			return headgate.Reservation{}, dst, headgate.ErrConflict
		}
		if reserve && n.admitted && b.now() >= n.expires {
			return headgate.Reservation{}, dst, headgate.ErrNoReservation
		}
		limits := slices.EqualFunc(n.checks, checks, func(x, y headgate.Check) bool {
			return x.Shadow == y.Shadow && slices.Equal(x.Rule.Limits(), y.Rule.Limits())
		})
		if limits {
			return n.reservation, append(dst, n.decisions...), nil
		}
		before := len(dst)
		dst = b.take(headgate.OpPeek, checks, dst)
		algorithm.Again(dst[before:], n.admitted)
		return n.reservation, dst, nil
	}
	before := len(dst)
	dst = b.take(headgate.OpTake, checks, dst)
	n := &booked{checks: slices.Clone(checks), decisions: slices.Clone(dst[before:]), reserved: reserve, chosen: chosen, term: terms.Term()}
	n.admitted = headgate.NewVerdict(n.decisions).Allowed
	n.expires = int64(n.decisions[0].At) + terms.Term().Microseconds()
	n.forgotten = n.expires
	if reserve && n.admitted {
		if chosen {
			n.forgotten += store.SettledFor.Microseconds()
		}
		n.reservation = headgate.Reservation{ID: terms.ID, Expires: headgate.Instant(n.expires)}
		for i, c := range checks {
			used, fits := []int64(nil), true
			for _, d := range n.decisions {
				if d.Check == i {
					used, fits = append(used, d.Limit.Capacity()-d.Remaining), fits && d.Allowed
				}
			}
			if fits {
				c.At = n.decisions[0].At
				n.reservation.Checks, n.used = append(n.reservation.Checks, c), append(n.used, used)
			}
		}
		if len(n.reservation.Checks) == 0 {
			n.reservation = headgate.Reservation{}
		}
	}
	b.notes[terms.ID] = n
	b.order = append(b.order, terms.ID)
	return n.reservation, dst, nil
}

func (b *book) recall(id string) (headgate.Reservation, error) {
	n := b.notes[id]
	if n == nil || n.reservation.ID == "" || b.now() >= n.expires {
		return headgate.Reservation{}, headgate.ErrNoReservation
	}
	return n.reservation, nil
}

func (b *book) finish(r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	n := b.notes[r.ID]
	switch {
	case n == nil || n.reservation.ID == "" || n.expires != int64(r.Expires):
		return dst, headgate.ErrNoReservation
	case n.units != nil && slices.Equal(n.units, units):
		return append(dst, n.settled...), nil
	case n.units != nil:
		return dst, headgate.ErrConflict
	case b.now() >= n.expires:
		return dst, headgate.ErrNoReservation
	}
	before := len(dst)
	dst = b.change(n, units, dst)
	n.units, n.settled = slices.Clone(units), slices.Clone(dst[before:])
	if !n.chosen {
		n.forgotten = b.now() + store.RepeatFor.Microseconds()
	}
	return dst, nil
}

// TakeOnce implements [headgate.Ledger].
func (b *book) TakeOnce(_ context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.ValidateOnce(&terms, checks); err != nil {
		return dst, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.catchUp()
	_, dst, err := b.once(terms, checks, dst, false, true)
	return dst, err
}

// Reserve implements [headgate.Ledger].
func (b *book) Reserve(_ context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	chosen := terms.ID != ""
	if !chosen {
		terms.ID = rand.Text()
	}
	if err := store.ValidateOnce(&terms, checks); err != nil {
		return headgate.Reservation{}, dst, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.catchUp()
	return b.once(terms, checks, dst, true, chosen)
}

// Recall implements [headgate.Ledger].
func (b *book) Recall(_ context.Context, id string) (headgate.Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.catchUp()
	return b.recall(id)
}

// Settle implements [headgate.Ledger].
func (b *book) Settle(_ context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.ValidateSettle(&r, units); err != nil {
		return dst, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.catchUp()
	return b.finish(r, units, dst)
}
