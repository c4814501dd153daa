package fallback

import (
	"context"
	"errors"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// ledger is a ledger with a fallback.
type ledger struct {
	outer
	inner headgate.Ledger
	local headgate.Ledger // nil if the local store is none
}

var _ headgate.Ledger = (*ledger)(nil)

// TakeOnce implements [headgate.Ledger]. A request that is decided without the primary is
// remembered by this node only, and not at all if its local store is no ledger.
func (l *ledger) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return l.decide(ctx, checks, dst,
		func(ctx context.Context, dst []headgate.Decision) ([]headgate.Decision, error) {
			return l.inner.TakeOnce(ctx, terms, checks, dst)
		},
		func(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
			if l.local == nil {
				return l.Layer.options.Local.Take(ctx, op, checks, dst)
			}
			return l.local.TakeOnce(ctx, terms, checks, dst)
		})
}

// Reserve implements [headgate.Ledger]. A reservation that was made without the
// primary is settled by this node alone. If no check is decided locally, or the
// local store is no ledger, there is nothing to settle, and the reservation has no
// ID.
func (l *ledger) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	var r headgate.Reservation
	out, err := l.decide(ctx, checks, dst,
		func(ctx context.Context, dst []headgate.Decision) (out []headgate.Decision, err error) {
			r, out, err = l.inner.Reserve(ctx, terms, checks, dst)
			return out, err
		},
		func(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) (out []headgate.Decision, err error) {
			if l.local == nil {
				return l.Layer.options.Local.Take(ctx, op, checks, dst)
			}
			r, out, err = l.local.Reserve(ctx, terms, checks, dst)
			if r.ID != "" {
				r.ID += l.mark()
			}
			return out, err
		})
	return r, out, err
}

// decide does what Take does, for requests that are remembered.
func (l *ledger) decide(ctx context.Context, checks []headgate.Check, dst []headgate.Decision, ask asking, take taking) ([]headgate.Decision, error) {
	word, may := l.breaker.enter()
	switch {
	case !may:
		return l.decideWithout(ctx, headgate.OpTake, checks, dst, *l.breaker.refusal.Load(), take)
	case l.learning.Load():
		return l.learn(ctx, word, headgate.OpTake, checks, dst, ask, take)
	}
	began := l.breaker.now()
	asked, release := l.spare(ctx, checks)
	out, err := ask(asked, dst)
	release()
	if err != nil {
		if l.noteError(ctx, word, began, err) {
			return l.decideWithout(ctx, headgate.OpTake, checks, dst, err, take)
		}
		return out, err
	}
	l.breaker.answered(began)
	l.mirror(ctx, headgate.OpTake, checks, out[len(dst):])
	return out, nil
}

// mark ends the ids of the reservations that this node has made without the primary.
func (l *ledger) mark() string { return "~" + l.options.Node[:min(8, len(l.options.Node))] }

// isLocal reports whether a reservation is the local store's, and the id that it has there.
func (l *ledger) isLocal(id string) (string, bool) {
	own, found := strings.CutSuffix(id, l.mark())
	return own, found && l.local != nil
}

// Recall implements [headgate.Ledger]. A reservation that another node has made without the
// primary cannot be found here.
func (l *ledger) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	if own, found := l.isLocal(id); found {
		r, err := l.local.Recall(ctx, own)
		if err == nil {
			r.ID = id
		}
		if !errors.Is(err, headgate.ErrNoReservation) {
			return r, err
		}
	}
	var r headgate.Reservation
	err := l.askOnly(ctx, func() (err error) {
		r, err = l.inner.Recall(ctx, id)
		return err
	})
	return r, err
}

// Settle implements [headgate.Ledger]. A reservation of the primary can only be
// settled while the primary answers. Settling it again later is safe.
func (l *ledger) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.ValidateSettle(&r, units); err != nil {
		return dst, err
	}
	if own, found := l.isLocal(r.ID); found {
		held := r
		held.ID = own
		out, err := l.local.Settle(ctx, held, units, dst)
		if !errors.Is(err, headgate.ErrNoReservation) {
			return l.settledLocally(&r, units, dst, out), err
		}
	}
	var out []headgate.Decision
	err := l.askOnly(ctx, func() (err error) {
		out, err = l.inner.Settle(ctx, r, units, dst)
		return err
	})
	if err != nil {
		return dst, err
	}
	l.mirrorSettlement(ctx, &r, units)
	return out, nil
}

// settledLocally adds to the debt what a reservation has cost beyond its estimate. If it has cost
// less, the debt is not reduced here: no more of it is charged than the local store holds.
func (l *ledger) settledLocally(r *headgate.Reservation, units []int64, dst, out []headgate.Decision) []headgate.Decision {
	for i := len(dst); i < len(out); i++ {
		out[i].Source = headgate.SourceLocal
	}
	for i := range r.Checks {
		if more := units[i] - r.Checks[i].Units(); len(out) > len(dst) && more > 0 {
			l.debts.grow(layer.CounterOf(&r.Checks[i]), more)
		}
	}
	return out
}

// mirrorSettlement makes the local store follow a settlement of the primary's.
func (l *ledger) mirrorSettlement(ctx context.Context, r *headgate.Reservation, units []int64) {
	for i, n := range units {
		c := r.Checks[i]
		switch more := n - c.Units(); {
		case more > 0:
			c.Cost = more
			d := headgate.Decision{Allowed: true}
			l.mirror(ctx, headgate.OpTake, []headgate.Check{c}, []headgate.Decision{d})
		case more < 0:
			c.Cost = -more
			l.mirror(ctx, headgate.OpRefund, []headgate.Check{c}, nil)
		}
	}
}

// askOnly makes a call that only the primary can answer.
func (l *ledger) askOnly(ctx context.Context, call func() error) error {
	word, may := l.breaker.enter()
	if !may {
		l.counts.refused.Add(1)
		return *l.breaker.refusal.Load()
	}
	began := l.breaker.now()
	err := call()
	if err != nil {
		if l.noteError(ctx, word, began, err) {
			l.counts.refused.Add(1)
		}
		return err
	}
	l.breaker.answered(began)
	return nil
}
