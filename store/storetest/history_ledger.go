package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// notes are what a history knows of the requests that it gave ids.
type notes struct {
	on   bool
	next int
	past []noted
	// gives is true if reservations give units back when they expire. Stores may do that
	// in another order than the model, and so all lists have the same rates then.
	gives bool
}

type noted struct {
	terms       headgate.Terms
	checks      []headgate.Check
	reserve     bool
	reservation []headgate.Reservation // of each store
}

// Sweeper is a store that gives back expired reservations now and then, and at
// once when it is asked to.
type Sweeper interface {
	Sweep(ctx context.Context) error
}

// told is what a ledger's method returned, so that two can be compared.
type told struct {
	decisions   []headgate.Decision
	reservation headgate.Reservation
	err         error
}

// sentinels are the errors that ledgers must agree on.
var sentinels = []error{headgate.ErrConflict, headgate.ErrNoReservation}

func (o *told) differs(p *told) bool {
	for _, e := range sentinels {
		if errors.Is(o.err, e) != errors.Is(p.err, e) {
			return true
		}
	}
	if len(o.decisions)+len(p.decisions) > 0 && !reflect.DeepEqual(o.decisions, p.decisions) {
		return true
	}
	a, b := &o.reservation, &p.reservation
	return (o.reservation.ID == "") != (p.reservation.ID == "") || a.Expires != b.Expires || !slices.EqualFunc(a.Checks, b.Checks, sameCheck)
}

func sameCheck(a, b headgate.Check) bool {
	return a.Rule.Name() == b.Rule.Name() && slices.EqualFunc(a.Rule.Limits(), b.Rule.Limits(), func(x, y headgate.Limit) bool { return x.String() == y.String() }) &&
		a.Key == b.Key && a.Units() == b.Units() && a.At == b.At && a.GiveBack == b.GiveBack && a.Shadow == b.Shadow && max(a.Factor, 1) == max(b.Factor, 1)
}

func (o *told) String() string {
	return fmt.Sprintf("%v, reservation %q until %d of %s\n%s", o.err, o.reservation.ID, o.reservation.Expires, describeChecks(o.reservation.Checks), describeDecisions(o.decisions))
}

// remember does, now and then, something with an id instead of a step without, and
// reports whether it did.
func (h *history) remember(store headgate.Ledger, others []headgate.Store, op headgate.Op, checks []headgate.Check) (bool, error) {
	ctx := context.Background()
	if op != headgate.OpTake || h.rng.IntN(2) == 0 {
		return false, nil
	}
	all := []headgate.Ledger{store}
	for _, o := range others {
		all = append(all, o.(headgate.Ledger))
	}
	var doing string
	var do func(i int, l headgate.Ledger) told
	var keep *noted
	past := h.notes.past[max(0, len(h.notes.past)-6):]
	switch n := h.rng.IntN(10); {
	case n < 4 && len(past) > 0:
		p := &past[h.rng.IntN(len(past))]
		if p.reservation[0].ID == "" {
			return false, nil
		}
		units := p.reservation[0].Units(1 + h.rng.Int64N(3))
		for i := range units {
			switch h.rng.IntN(4) {
			case 0:
				units[i] = 0
			case 1:
				units[i] = p.reservation[0].Checks[i].Units() + h.rng.Int64N(4)
			case 2:
				units[i] = h.rng.Int64N(p.reservation[0].Checks[i].Units() + 1)
			}
		}
		doing = fmt.Sprintf("settle %s at %v", p.terms.ID, units)
		do = func(i int, l headgate.Ledger) (o told) {
			o.decisions, o.err = l.Settle(ctx, p.reservation[i], units, nil)
			return o
		}
	case n < 5 && len(past) > 0:
		p := &past[h.rng.IntN(len(past))]
		if p.reservation[0].ID == "" {
			return false, nil
		}
		doing = "recall " + p.terms.ID
		do = func(i int, l headgate.Ledger) (o told) {
			o.reservation, o.err = l.Recall(ctx, p.reservation[i].ID)
			return o
		}
	default:
		p := noted{
			terms:   headgate.Terms{ID: fmt.Sprintf("id %d", h.notes.next), For: time.Duration(1+h.rng.IntN(20_000)) * time.Millisecond},
			checks:  slices.Clone(checks),
			reserve: h.rng.IntN(2) == 0,
		}
		h.notes.next++
		for i := range p.checks {
			if p.reserve {
				p.checks[i].GiveBack = h.notes.gives && h.rng.IntN(2) == 0
				p.checks[i].Factor = h.rng.Int64N(3)
			}
		}
		if len(past) > 0 && h.rng.IntN(3) == 0 { // the same again
			p = past[h.rng.IntN(len(past))]
			switch h.rng.IntN(6) {
			case 0:
				p.reserve = !p.reserve
			case 1:
				p.checks = slices.Clone(checks)
			case 2: // by the rules as they are now
				p.checks = slices.Clone(p.checks)
				for i := range p.checks {
					for _, r := range h.rules {
						if r.Name() == p.checks[i].Rule.Name() {
							p.checks[i].Rule = r
						}
					}
				}
			}
		}
		doing = fmt.Sprintf("once %q for %v, reserve %t: %s", p.terms.ID, p.terms.For, p.reserve, describeChecks(p.checks))
		p.reservation = make([]headgate.Reservation, len(all))
		keep = &p
		do = func(i int, l headgate.Ledger) (o told) {
			if p.reserve {
				o.reservation, o.decisions, o.err = l.Reserve(ctx, p.terms, p.checks, nil)
			} else {
				o.decisions, o.err = l.TakeOnce(ctx, p.terms, p.checks, nil)
			}
			p.reservation[i] = o.reservation
			return o
		}
	}
	got := do(0, all[0])
	if got.err != nil && !errors.Is(got.err, sentinels[0]) && !errors.Is(got.err, sentinels[1]) {
		return true, fmt.Errorf("%s: %w", doing, got.err)
	}
	for i, l := range all[1:] {
		if want := do(i+1, l); got.differs(&want) {
			return true, fmt.Errorf("%s: %s%T: %s", doing, &got, l, &want)
		}
	}
	if keep != nil && got.err == nil {
		h.notes.past = append(h.notes.past, *keep)
	}
	return true, nil
}
