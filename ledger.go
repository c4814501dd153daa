package headgate

import (
	"context"
	"math/bits"
	"time"
)

// The bounds of [Terms].
const (
	// MaxID is the longest id of a request, in bytes.
	MaxID = 256
	// MaxTerm is the longest that a request may be remembered.
	MaxTerm = 24 * time.Hour
	// DefaultTerm is how long it is remembered unless told otherwise.
	DefaultTerm = time.Minute
)

// Terms are how a request is remembered by its id.
type Terms struct {
	// ID names the request among all that use the store: 1 to MaxID bytes, chosen
	// so that no two requests share one. [Ledger.Reserve] makes one up, of 128
	// random bits, if it is empty.
	ID string
	// For is how long the id is remembered and, for a reservation, how long it
	// may be settled: whole milliseconds up to MaxTerm. Zero means DefaultTerm.
	For time.Duration
}

// Term is For with its default applied.
func (t *Terms) Term() time.Duration {
	if t.For == 0 {
		return DefaultTerm
	}
	return t.For
}

// Validate returns an [*InvalidError] if no ledger could take the terms. An empty
// id is one that is still to be made up.
func (t *Terms) Validate() error {
	var problems Problems
	if len(t.ID) > MaxID {
		problems.Add("id", "the id has %d bytes, must have at most %d", len(t.ID), MaxID)
	}
	if t.For < 0 || t.For > MaxTerm || t.For%time.Millisecond != 0 {
		problems.Add("for", "the request is to be remembered for %v, must be whole milliseconds up to %v", t.For, MaxTerm)
	}
	return problems.Err("request")
}

// Reservation is what was charged for a request whose cost is not final.
type Reservation struct {
	// ID is what [Ledger.Recall] finds the reservation by, in any process: the id
	// of the terms, or a longer one that begins with it.
	ID string
	// Expires is when it can no longer be settled, on the store's clock.
	Expires Instant
	// Checks are those that were charged, shadows that did not fit left out. Their
	// At is when.
	Checks []Check
	// Used is how many units were in use right after that, for each limit of the
	// checks in their order, so that what has been refilled since is not given back
	// again. It may be nil: not known.
	Used []int64
}

// Units returns what each check of the reservation costs in a request of the
// given cost: MaxCount at most.
func (r *Reservation) Units(cost int64) []int64 {
	units := make([]int64, len(r.Checks))
	for i := range r.Checks {
		hi, lo := bits.Mul64(uint64(max(cost, 0)), uint64(max(r.Checks[i].Factor, 1)))
		if hi != 0 || lo > MaxCount {
			lo = MaxCount
		}
		units[i] = int64(lo)
	}
	return units
}

// Ledger is a [Store] that remembers requests by an id, so that they can be
// repeated without being charged again, and settled later at another cost. The
// stores of this project are ledgers.
//
// What it remembers is kept as counters are: together with the charge, in the same
// step. Errors are as those of [Store]; besides, one wraps [ErrConflict] if the id
// belongs to another request, and [ErrNoReservation] if there is none to settle.
type Ledger interface {
	Store

	// TakeOnce is Take with OpTake for a request that has an id. While that is
	// remembered, the same request gets the answer that it got the first time,
	// and nothing is charged. If the limits of its rules were changed in the
	// meantime, it is admitted or denied as it was, and the numbers are today's.
	TakeOnce(ctx context.Context, terms Terms, checks []Check, dst []Decision) ([]Decision, error)

	// Reserve is TakeOnce for a request whose cost is an estimate. To be the same
	// request it must have the same For, factors and GiveBack, too. If it is
	// admitted, Settle says the real cost before the reservation expires. Of one
	// that is not settled, the checks with GiveBack get their units back, and the
	// others stay charged as estimated. If nothing was charged there is no
	// reservation, and what is returned has no ID. Repeated within a minute after
	// it has expired, the request is refused with ErrNoReservation, and charges
	// nothing.
	Reserve(ctx context.Context, terms Terms, checks []Check, dst []Decision) (Reservation, []Decision, error)

	// Recall finds a reservation by its ID, settled or not, until it expires. If the store made up
	// the id, it finds a settled reservation only for ten seconds.
	Recall(ctx context.Context, id string) (Reservation, error)

	// Settle makes the units of each check of the reservation those that are
	// given, 0 to MaxCount: what was estimated too much is given back as a refund
	// is, and what is missing is charged whether it fits or not. It appends the
	// state of each limit to dst. All zeros cancel the reservation. Settling
	// again with the same units changes nothing and gets the same answer, until a
	// minute after the reservation has expired or, if the store made up the id, until
	// ten seconds after it was settled. Then there is ErrNoReservation. A store whose
	// memory is full may forget settled reservations whose id it made up before that.
	Settle(ctx context.Context, r Reservation, units []int64, dst []Decision) ([]Decision, error)
}
