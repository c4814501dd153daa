package lease

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// ledger is a ledger with leases in front of it. The ledger inside decides the requests that are
// remembered.
type ledger struct {
	outer
	inner headgate.Ledger
}

var _ headgate.Ledger = (*ledger)(nil)

// TakeOnce implements [headgate.Ledger].
func (l *ledger) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if !anyLeased(checks) {
		return l.inner.TakeOnce(ctx, terms, checks, dst)
	}
	if err := store.ValidateOnce(&terms, checks); err != nil {
		return dst, err
	}
	s := l.get()
	defer l.put(s)
	s.addAll(l.Layer, checks)
	out, err := l.inner.TakeOnce(ctx, terms, slices.Clone(s.checks), dst)
	if err == nil {
		s.showAll(out[len(dst):], checks)
	}
	return out, err
}

// Reserve implements [headgate.Ledger]. The checks of the reservation have the rules
// that the caller knows.
func (l *ledger) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	if !anyLeased(checks) {
		return l.inner.Reserve(ctx, terms, checks, dst)
	}
	if err := validateReserve(&terms, checks); err != nil {
		return headgate.Reservation{}, dst, err
	}
	s := l.get()
	defer l.put(s)
	s.addAll(l.Layer, checks)
	r, out, err := l.inner.Reserve(ctx, terms, slices.Clone(s.checks), dst)
	if err == nil {
		s.showAll(out[len(dst):], checks)
	}
	for i := range r.Checks {
		held := &r.Checks[i]
		for j := range s.checks {
			if c := &s.checks[j]; c.Rule == held.Rule && c.Key == held.Key {
				held.Rule = checks[j].Rule
			}
		}
	}
	return r, out, err
}

// validateReserve returns an error if no ledger could reserve the checks. It checks the terms and
// the checks as a ledger would, but under the rules that the caller knows.
func validateReserve(terms *headgate.Terms, checks []headgate.Check) error {
	if err := terms.Validate(); err != nil {
		return err
	}
	return store.Validate(headgate.OpTake, checks)
}

// Recall implements [headgate.Ledger]. The checks have the rules that the store
// enforces.
func (l *ledger) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	return l.inner.Recall(ctx, id)
}

// Settle implements [headgate.Ledger].
func (l *ledger) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	if !anyLeased(r.Checks) {
		return l.inner.Settle(ctx, r, units, dst)
	}
	if err := store.ValidateSettle(&r, units); err != nil {
		return dst, err
	}
	s := l.get()
	defer l.put(s)
	s.addAll(l.Layer, r.Checks)
	asked := r
	asked.Checks = slices.Clone(s.checks)
	out, err := l.inner.Settle(ctx, asked, units, dst)
	if err == nil {
		s.showAll(out[len(dst):], r.Checks)
	}
	return out, err
}
