package cas

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	randv2 "math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/sleep"
	"github.com/headgate/headgate/store"
)

var _ headgate.Ledger = (*Ledger)(nil)

// Ledger is a [Store] that remembers requests by their ids, in values beside the
// counters, which are written in the same attempt. It is safe for concurrent use. Make
// one with [NewLedger].
type Ledger struct {
	*Store
	backend LedgerBackend
	stop    context.CancelFunc
	swept   chan struct{} // closed once nothing is swept any more
}

const (
	// sweepEvery is how often a ledger looks for what has expired. It then deals with
	// sweepBatch reservations, and looks for more at once, at most sweepBatches times.
	sweepEvery   = time.Second
	sweepBatch   = 64
	sweepBatches = 64
	// sweepWithin bounds each sweep. Nobody waits for it.
	sweepWithin = 5 * time.Second
)

// NewLedger is [New] for a ledger. Until it is closed, one goroutine gives back the units of
// expired reservations that nobody has settled, and lets the backend forget what has expired.
func NewLedger(backend LedgerBackend, options ...Option) (*Ledger, error) {
	if most := backend.MaxKeys(); most <= headgate.MaxChecks {
		return nil, headgate.Invalid("ledger", "backend", "the backend takes %d keys at a time, and a ledger needs %d", most, headgate.MaxChecks+1)
	}
	s, err := New(backend, options...)
	if err != nil {
		return nil, err
	}
	l := &Ledger{Store: s, backend: backend, stop: func() {}, swept: make(chan struct{})}
	if s.settings.clock != nil {
		close(l.swept)
		return l, nil
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	go l.keepSweeping(ctx)
	return l, nil
}

func (l *Ledger) keepSweeping(ctx context.Context) {
	defer close(l.swept)
	// The pause is random, so that processes do not sweep at the same moment.
	for sleep.For(ctx, sweepEvery/2+randv2.N(sweepEvery)) {
		within, cancel := context.WithTimeout(ctx, sweepWithin)
		// If the database is away, the next sweep finds what this one did not.
		_ = l.Sweep(within)
		cancel()
	}
}

// Close ends the goroutine, waits for the attempts that are under way, and refuses later
// calls. The backend is not closed.
func (l *Ledger) Close() {
	l.stop()
	<-l.swept
	l.Store.Close()
}

// noteName returns the name of an id's note. It cannot be a counter's: no rule's name is
// empty.
func (l *Ledger) noteName(id string) string { return l.settings.prefix + " " + id }

// note returns the note of that name, or nil if there is none.
func (b *batch) note(name string) (*note, error) {
	raw := b.value(name)
	if raw == nil {
		return nil, nil
	}
	n := new(note)
	if err := decode(raw, n.code); err != nil {
		return nil, fmt.Errorf("%w: the note of a request cannot be read: %w", headgate.ErrUnavailable, err)
	}
	return n, nil
}

func (b *batch) write(name string, n *note) {
	due := headgate.Instant(0)
	if n.pending() {
		due = n.expires
	}
	b.setValue(name, encode(n.code), n.forgotten(), due)
}

// TakeOnce implements [headgate.Ledger].
func (l *Ledger) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	_, dst, err := l.once(ctx, terms, checks, dst, false, true)
	return dst, err
}

// Reserve implements [headgate.Ledger].
func (l *Ledger) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	chosen := terms.ID != ""
	if !chosen {
		terms.ID = rand.Text()
	}
	return l.once(ctx, terms, checks, dst, true, chosen)
}

// errPending is the error of an id that is free again as soon as the units of its last
// reservation have been given back.
var errPending = errors.New("units are to be given back first")

// once takes units, as a reservation or not. The denial of a request without an id of its own
// is not remembered: nobody can repeat the request.
func (l *Ledger) once(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision, reserve, chosen bool) (headgate.Reservation, []headgate.Decision, error) {
	if err := store.ValidateOnce(&terms, checks); err != nil {
		return headgate.Reservation{}, dst, err
	}
	r, name := l.request(checks), l.noteName(terms.ID)
	var (
		answers  []headgate.Decision
		reserved headgate.Reservation
	)
	decide := func(b *batch) error {
		answers, reserved = answers[:0], headgate.Reservation{}
		n, err := b.note(name)
		switch {
		case err != nil:
			return err
		case n != nil && b.now < n.forgotten():
			answers, reserved, err = b.again(n, &terms, r, reserve, answers)
			return err
		case n != nil && n.pending():
			return errPending
		}
		if err := b.open(r); err != nil {
			return err
		}
		answers = b.take(headgate.OpTake, r, answers)
		n = newNote(&terms, reserve, chosen, r.checks, answers)
		if !n.admitted && !chosen {
			return nil
		}
		b.write(name, n)
		reserved, err = n.reservation(terms.ID, r.checks)
		return err
	}
	names := append([]string{name}, r.names...)
	err := l.turns.do(ctx, names, decide)
	if errors.Is(err, errPending) {
		if err = l.expire(ctx, name); err == nil {
			err = l.turns.do(ctx, names, decide)
		}
	}
	if errors.Is(err, errPending) {
		err = unavailable(err)
	}
	if err != nil {
		return headgate.Reservation{}, dst, err
	}
	return reserved, append(dst, answers...), nil
}

// again answers a request whose id is remembered.
func (b *batch) again(n *note, terms *headgate.Terms, r *request, reserve bool, answers []headgate.Decision) ([]headgate.Decision, headgate.Reservation, error) {
	if reserve != n.reserved || reserve && terms.Term().Microseconds() != n.term || !n.same(r.checks) {
		return answers, headgate.Reservation{}, &headgate.ConflictError{}
	}
	if reserve && n.admitted && b.now >= n.expires {
		// The note is only kept for a repeated settlement: its units may have been given back.
		return answers, headgate.Reservation{}, headgate.ErrNoReservation
	}
	if n.sameLimits(r.checks) {
		answers = decisions(answers, n.answers, n.at, r.checks)
	} else {
		if err := b.open(r); err != nil {
			return answers, headgate.Reservation{}, err
		}
		answers = b.take(headgate.OpPeek, r, answers)
		algorithm.Again(answers, n.admitted)
	}
	reserved, err := n.reservation(terms.ID, r.checks)
	return answers, reserved, err
}

// Recall implements [headgate.Ledger].
func (l *Ledger) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	name := l.noteName(id)
	if id == "" || len(id) > headgate.MaxID {
		return headgate.Reservation{}, headgate.ErrNoReservation
	}
	var reserved headgate.Reservation
	err := l.turns.do(ctx, []string{name}, func(b *batch) error {
		n, err := b.note(name)
		switch {
		case err != nil:
			return err
		case n == nil || b.now >= min(n.expires, n.forgotten()):
			return headgate.ErrNoReservation
		}
		if reserved, err = n.reservation(id, nil); err == nil && reserved.ID == "" {
			err = headgate.ErrNoReservation
		}
		return err
	})
	if err != nil {
		return headgate.Reservation{}, err
	}
	return reserved, nil
}

// Settle implements [headgate.Ledger].
func (l *Ledger) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.ValidateSettle(&r, units); err != nil {
		return dst, err
	}
	q, name, units := l.request(r.Checks), l.noteName(r.ID), slices.Clone(units)
	var answers []headgate.Decision
	err := l.turns.do(ctx, append([]string{name}, q.names...), func(b *batch) error {
		answers = answers[:0]
		n, err := b.note(name)
		switch {
		case err != nil:
			return err
		case n == nil || n.expires != r.Expires || b.now >= n.forgotten(): // or the id was used again
			return headgate.ErrNoReservation
		}
		kept, err := n.reservation(r.ID, q.checks)
		switch {
		case err != nil:
			return err
		case !sameChecks(kept.Checks, q.checks):
			return headgate.ErrNoReservation
		case n.units != nil && slices.Equal(n.units, units):
			answers = decisions(answers, n.settled, n.settledAt, kept.Checks)
			return nil
		case n.finished && n.units == nil: // expired, even if the clock was set back since
			return headgate.ErrNoReservation
		case n.finished:
			return &headgate.ConflictError{Units: units}
		case b.now >= n.expires:
			return headgate.ErrNoReservation
		}
		if answers, err = b.finish(q, &kept, units, answers); err != nil {
			return err
		}
		n.finished, n.units, n.settled, n.settledAt = true, units, slices.Clone(answers), b.now
		b.write(name, n)
		return nil
	})
	if err != nil {
		return dst, err
	}
	return append(dst, answers...), nil
}

// sameChecks reports whether the checks of two reservations have the same counters.
func sameChecks(a, b []headgate.Check) bool {
	return slices.EqualFunc(a, b, func(a, b headgate.Check) bool { return a.Rule.Name() == b.Rule.Name() && a.Key == b.Key })
}

// finish changes what a reservation's checks have charged to the given units. The names of q
// are those of its counters.
func (b *batch) finish(q *request, kept *headgate.Reservation, units []int64, answers []headgate.Decision) ([]headgate.Decision, error) {
	q = &request{checks: kept.Checks, names: q.names}
	if err := b.open(q); err != nil {
		return answers, err
	}
	used := kept.Used
	for i := range q.checks {
		limits := len(q.checks[i].Rule.Limits())
		b.change(q, i, units[i]-q.checks[i].Units(), used[:limits])
		used = used[limits:]
	}
	return b.answer(headgate.OpCharge, q, answers), nil
}

// Sweep gives back the units of reservations that have expired, and lets the backend forget
// some of the values that have. A ledger calls it by itself; tests call it, too.
func (l *Ledger) Sweep(ctx context.Context) error {
	now, err := l.now(ctx)
	if err != nil {
		return unavailable(err)
	}
	var failure error
	for range sweepBatches {
		due, err := l.backend.Due(ctx, l.noteName(""), now, sweepBatch)
		if err != nil {
			return unavailable(err)
		}
		for _, name := range due {
			if err := l.expire(ctx, name); err != nil && failure == nil {
				failure = err
			}
		}
		if len(due) < sweepBatch || failure != nil {
			break
		}
	}
	// The database reads its clock anew: if that was set back since, values that were written
	// meanwhile must stay. A clock given to the store is not the database's.
	if l.settings.clock == nil {
		now = 0
	}
	// If reservations cannot be given back, the other values must not pile up as well.
	if err := l.backend.Forget(ctx, l.settings.prefix, now); err != nil && failure == nil {
		failure = unavailable(err)
	}
	return failure
}

func (l *Ledger) now(ctx context.Context) (int64, error) {
	if l.settings.clock != nil {
		return l.settings.clock(), nil
	}
	return l.backend.Clock(ctx)
}

// expire settles a reservation that has expired: each check gives its units back, or keeps
// them charged, as its GiveBack says.
func (l *Ledger) expire(ctx context.Context, name string) error {
	var q *request
	err := l.turns.do(ctx, []string{name}, func(b *batch) error {
		q = nil
		n, err := b.note(name)
		if err == nil && n != nil && n.pending() {
			var kept headgate.Reservation
			if kept, err = n.reservation(name, nil); err == nil {
				q = l.request(kept.Checks)
				return nil
			}
		}
		b.clearDue(name)
		return nil
	})
	if err != nil || q == nil {
		return err
	}
	return l.turns.do(ctx, append([]string{name}, q.names...), func(b *batch) error {
		n, err := b.note(name)
		if err != nil || n == nil || !n.pending() || b.now < n.expires {
			return err
		}
		kept, err := n.reservation(name, q.checks)
		if err != nil {
			return err
		}
		if sameChecks(kept.Checks, q.checks) {
			units := make([]int64, len(kept.Checks))
			for i := range kept.Checks {
				if c := &kept.Checks[i]; !c.GiveBack {
					units[i] = c.Units()
				}
			}
			// Counters that cannot be read have nothing that could be given back.
			_, _ = b.finish(q, &kept, units, nil)
		}
		n.finished = true
		b.write(name, n)
		return nil
	})
}

// clearDue leaves a note as it is, without a time at which it is due.
func (b *batch) clearDue(name string) {
	if c := &b.cells[b.places[name]]; !c.write && c.raw != nil {
		b.setValue(name, c.raw, b.now+headgate.Instant(store.SettledFor.Microseconds()), 0)
	}
}
