package lease_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/memory"
)

// ledgerNode is a node whose way to the store has reservations, which do not fail.
type ledgerNode struct {
	*node
	*memory.Store
}

var _ headgate.Ledger = ledgerNode{}

func (n ledgerNode) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return n.node.Take(ctx, op, checks, dst)
}

// reserve makes a reservation, and settles it a little later, found again by its id or
// not: at less, at more, at nothing.
func (w *crowd) reserve(n *node) {
	s, ok := n.lease.Store().(headgate.Ledger)
	if !ok {
		w.say("a lease around a ledger is none")
		return
	}
	checks := w.request(int64(1 + w.roll(20)))[:1]
	w.loaded(n, checks)
	c := &checks[0]
	w.ask(checks, 1)
	r, out, err := s.Reserve(context.Background(), headgate.Terms{For: 2 * time.Second}, checks, nil)
	w.ask(checks, -1)
	if err != nil {
		w.say("reserve: %v", err)
		return
	}
	if !headgate.NewVerdict(out).Allowed {
		return
	}
	w.mu.Lock()
	w.ledger(c).admit(int64(out[0].At), c.Units())
	w.tally.reserved++
	w.mu.Unlock()
	time.Sleep(time.Duration(w.roll(30)) * time.Millisecond)
	if w.roll(2) == 0 {
		if r, err = s.Recall(context.Background(), r.ID); err != nil {
			w.say("recall: %v", err)
			return
		}
	}
	units := int64(w.roll(2 * int(c.Units())))
	if _, err := s.Settle(context.Background(), r, []int64{units}, nil); err != nil {
		w.say("settle: %v", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.ledger(c)
	if i := slices.Index(g.admitted, passage{int64(out[0].At), c.Units()}); i >= 0 && units < c.Units() {
		g.admitted[i].units = units
		g.gifts += c.Units() - units // what plain refunds of others may have freed already
	}
}

// TestLeaseReservations: with leases, refunds, resets and reservations of the same keys at
// the same time, no limit admits more than its own rule allows.
func TestLeaseReservations(t *testing.T) {
	histories := uint64(race.Fewer(leaseHistories / 8))
	reserved := int64(0)
	for seed := range histories {
		bubbletest.Test(t, func(t *testing.T) {
			w := newCrowd(t, seed)
			w.plain, w.books = false, true
			w.play()
			for i, text := range w.finish() {
				if i == 5 {
					break
				}
				t.Errorf("history %d (%d nodes): %s", seed, w.count, text)
			}
			reserved += w.tally.reserved
		})
		if t.Failed() {
			return
		}
	}
	if reserved < int64(histories) {
		t.Errorf("only %d reservations in %d histories, which prove nothing of them", reserved, histories)
	}
}
