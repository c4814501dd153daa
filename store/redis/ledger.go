package redis

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

var _ headgate.Ledger = (*Store)(nil)

// settledFor is how long a reservation is remembered after it has expired, so that a settlement at
// the last moment can be repeated.
const settledFor = time.Minute

// keptFor is how long a reservation whose units are to be given back is kept after it has expired,
// because there may be no running process that can give them back.
const keptFor = 24 * time.Hour

// TakeOnce implements [headgate.Ledger]. On a cluster, the same id names different requests if
// their first counters are in different hash slots.
func (s *Store) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	_, dst, err := s.once(ctx, terms, checks, dst, false, true)
	return dst, err
}

// Reserve implements [headgate.Ledger]. If a reservation that is to be given back expires without a
// settlement, its units come back within seconds, by any process that has made such reservations.
// If no such process runs, they come back when one runs again.
func (s *Store) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	named := terms.ID != ""
	if !named {
		terms.ID = rand.Text()
	}
	return s.once(ctx, terms, checks, dst, true, named)
}

func (s *Store) once(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision, reserve, named bool) (headgate.Reservation, []headgate.Decision, error) {
	var none headgate.Reservation
	if err := store.ValidateOnce(&terms, checks); err != nil {
		return none, dst, err
	}
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return none, dst, unavailable("take", err)
	}
	defer cancel()
	n := &note{key: s.noteKey(terms.ID, string(appendKey(nil, s.prefix, &checks[0]))), prints: printOf(&terms, checks, reserve), term: terms.Term(), named: named}
	if reserve {
		n.payload = string(appendChecks(nil, checks))
		if _, err := readChecks(n.payload); err != nil {
			return none, dst, fmt.Errorf("%w: the reservation could not be settled by another process: %w", headgate.ErrInvalid, err)
		}
		if n.gives = gives(checks); n.gives {
			id := terms.ID
			if s.clustered != nil {
				id = clusterID(id, s.slotOfCheck(&checks[0]))
			}
			if err := s.promise(ctx, id, terms.Term()); err != nil {
				return none, dst, err
			}
		}
	}
	if s.clustered != nil {
		return s.onceCluster(ctx, terms, checks, dst, reserve, n)
	}
	before := len(dst)
	for range windowTries {
		r, err := s.call(ctx, headgate.OpTake, checks, n)
		if err != nil {
			return none, dst, err
		}
		s.heard(r.now)
		switch r.status {
		case statusWindow:
			continue
		case statusConflict:
			return none, dst, &headgate.ConflictError{}
		case statusNone:
			return none, dst, headgate.ErrNoReservation
		case statusDenies, statusAdmits:
			return s.changed(ctx, terms.ID, checks, dst, r.status == statusAdmits, reserve)
		}
		dst, err = r.decisions(headgate.OpTake, checks, dst)
		if err != nil || !reserve || r.status != statusAdmitted {
			return none, dst, err
		}
		return store.NewReservation(terms.ID, r.now+headgate.Instant(terms.Term().Microseconds()), checks, dst[before:]), dst, nil
	}
	return none, dst, jumps(headgate.OpTake)
}

// changed answers a request that is repeated after its limits have changed.
func (s *Store) changed(ctx context.Context, id string, checks []headgate.Check, dst []headgate.Decision, admitted, reserve bool) (r headgate.Reservation, _ []headgate.Decision, err error) {
	if admitted && reserve {
		recalled, err := s.read(ctx, id)
		if err != nil {
			return r, dst, err
		}
		r = recalled.reservation
	}
	before := len(dst)
	dst, err = s.Take(ctx, headgate.OpPeek, checks, dst)
	if err != nil {
		return headgate.Reservation{}, dst, err
	}
	algorithm.Again(dst[before:], admitted)
	return r, dst, nil
}

func gives(checks []headgate.Check) bool {
	for i := range checks {
		if checks[i].GiveBack {
			return true
		}
	}
	return false
}

// recalled is what is known about a reservation.
type recalled struct {
	open        bool
	expired     bool
	reservation headgate.Reservation
}

// Recall implements [headgate.Ledger].
func (s *Store) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return headgate.Reservation{}, unavailable("recall", err)
	}
	defer cancel()
	r, err := s.read(ctx, id)
	if err == nil && (r.expired || r.reservation.ID == "") {
		err = headgate.ErrNoReservation
	}
	if err != nil {
		return headgate.Reservation{}, err
	}
	return r.reservation, nil
}

// read reads what is known about a reservation, whether it has expired or not.
func (s *Store) read(ctx context.Context, id string) (recalled, error) {
	if s.clustered != nil {
		return s.readCluster(ctx, id)
	}
	n, err := s.readNote(ctx, s.noteKey(id, ""))
	if err != nil {
		return recalled{}, err
	}
	if n.checks == nil || n.answer.status != statusAdmitted {
		return recalled{}, headgate.ErrNoReservation
	}
	decisions, err := n.answer.decisions(headgate.OpTake, n.checks, nil)
	if err != nil {
		return recalled{}, err
	}
	return recalled{n.open, n.now >= n.expires, store.NewReservation(id, headgate.Instant(n.expires), n.checks, decisions)}, nil
}
