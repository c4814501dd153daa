package store

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// Single is what a [headgate.Store] may offer besides: its Take for the most common
// requests. A [headgate.Limiter] uses it.
type Single interface {
	headgate.Store
	// TakeSingle is Take with OpTake for one check, whose rule has one limit. A
	// cost of zero means one. It returns the fields of the Decision that the caller does
	// not know, each in a register, because copying a Decision takes long in comparison.
	TakeSingle(ctx context.Context, rule *headgate.Rule, key string, cost int64) (allowed bool, remaining int64, retry, reset, delay time.Duration, at headgate.Instant, err error)
	// TakeKey is Take with OpTake for a check of each rule, all with one key and one cost. The rules have
	// different names, and two to eight limits in all, none of them a sliding window or a penalty.
	// It returns the fields of the decision that [headgate.Verdict.Deciding] returns, and in which the
	// place of that decision. If ok is false, nothing is charged, and Take has to be asked.
	TakeKey(ctx context.Context, rules []*headgate.Rule, key string, cost int64) (which int, allowed bool, remaining int64, retry, reset, delay time.Duration, at headgate.Instant, ok bool)
}

// How long ledgers remember reservations.
const (
	// SettledFor is how long a reservation is remembered after it has expired, so that a settlement
	// at the last moment can be repeated.
	SettledFor = time.Minute
	// RepeatFor is how long, after its settlement, a reservation is remembered whose id the store
	// made up, so that the settlement can be repeated. Nobody but the one who settles knows the id.
	RepeatFor = 10 * time.Second
)

// NewReservation returns the reservation that a ledger makes for an admitted request.
// The decisions say which of its checks were charged, and when. The reservation is
// zero if none was: all were shadows that did not fit.
func NewReservation(id string, expires headgate.Instant, checks []headgate.Check, decisions []headgate.Decision) headgate.Reservation {
	r := headgate.Reservation{ID: id, Expires: expires}
	refused := uint64(0)
	for i := range decisions {
		if !decisions[i].Allowed {
			refused |= 1 << decisions[i].Check
		}
	}
	last := -1 // the check of the decision before
	for i := range decisions {
		if d := &decisions[i]; d.Check != last && refused&(1<<d.Check) == 0 {
			c := checks[d.Check]
			c.At = d.At
			r.Checks = append(r.Checks, c)
			last = d.Check
		}
	}
	if len(r.Checks) == 0 {
		return headgate.Reservation{}
	}
	for i := range decisions {
		if d := &decisions[i]; refused&(1<<d.Check) == 0 {
			r.Used = append(r.Used, d.Limit.Capacity()-d.Remaining)
		}
	}
	return r
}
