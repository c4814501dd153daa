package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// TestLimiterLedger: reservations and requests with an id, by a limiter.
func TestLimiterLedger(t *testing.T) {
	ctx := t.Context()
	tokens := headgate.MustRule("tokens", headgate.Sliding(100, time.Hour))
	l, clock := fixed(tokens)
	check := headgate.Check{Rule: tokens, Key: "k", Cost: 40}
	r, v, err := l.Reserve(ctx, headgate.Terms{For: time.Minute}, check)
	if err != nil || !v.Allowed || r.ID == "" || int64(r.Expires) != clock.Now()+60_000_000 {
		t.Fatalf("reserve: %+v, %+v, %v", r, v, err)
	}
	if again, err := l.Recall(ctx, r.ID); err != nil || again.Checks[0].Units() != 40 {
		t.Errorf("recall: %+v, %v", again, err)
	}
	if v, err := l.Settle(ctx, r, 25); err != nil || v.Decisions[0].Remaining != 75 {
		t.Errorf("settle: %+v, %v", v, err)
	}
	if err := l.Cancel(ctx, r); !errors.Is(err, headgate.ErrConflict) {
		t.Errorf("cancel what was settled: %v", err)
	}
	if _, err := l.Settle(ctx, r, -1); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("settle at -1: %v", err)
	}
	for range 3 {
		if v, err := l.TakeOnce(ctx, headgate.Terms{ID: "a"}, check); err != nil || v.Decisions[0].Remaining != 35 {
			t.Errorf("take once: %+v, %v", v, err)
		}
	}
	denied, v, err := l.Reserve(ctx, headgate.Terms{}, check)
	if err != nil || v.Allowed || denied.ID != "" {
		t.Errorf("a denied reservation: %+v, %+v, %v", denied, v, err)
	}
	if err := l.Cancel(ctx, denied); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("cancel what was not reserved: %v", err)
	}
	clock.Add(time.Minute)
	if _, err := l.Recall(ctx, r.ID); !errors.Is(err, headgate.ErrNoReservation) {
		t.Errorf("recall what has expired: %v", err)
	}
	// A store that remembers nothing says so, and hooks do not hide one that does.
	plain := headgate.New(struct{ headgate.Store }{memory.New()}, tokens)
	if _, err := plain.TakeOnce(ctx, headgate.Terms{ID: "a"}, check); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a store without a ledger: %v", err)
	}
	observed := headgate.New(headgate.Observe(memory.New(), headgate.Hooks{}), tokens)
	if _, err := observed.TakeOnce(ctx, headgate.Terms{ID: "a"}, check); err != nil {
		t.Errorf("an observed ledger: %v", err)
	}
}

// TestReservationUnits: what a request would have cost each rule.
func TestReservationUnits(t *testing.T) {
	r := headgate.Reservation{Checks: []headgate.Check{{Cost: 10}, {Cost: 30, Factor: 3}, {Cost: 1, Factor: headgate.MaxCount}}}
	for cost, want := range map[int64][]int64{0: {0, 0, 0}, 7: {7, 21, headgate.MaxCount}, headgate.MaxCount: {headgate.MaxCount, headgate.MaxCount, headgate.MaxCount}} {
		if got := r.Units(cost); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("a request of %d costs %v, want %v", cost, got, want)
		}
	}
}

// TestObserveLedger: charges are told, and settlements are not.
func TestObserveLedger(t *testing.T) {
	told := 0
	store := headgate.Observe(memory.New(), headgate.Hooks{
		Decided: func(_ context.Context, op headgate.Op, checks []headgate.Check, decisions []headgate.Decision, _ time.Duration) {
			if told++; op != headgate.OpTake || len(checks) != 1 || len(decisions) != 1 {
				t.Errorf("told of %v with %d checks and %d decisions, want a take of one", op, len(checks), len(decisions))
			}
		},
	})
	rule := headgate.MustRule("r", headgate.PerHour(9))
	l, check := headgate.New(store, rule), headgate.Check{Rule: rule, Key: "k", Cost: 3}
	if _, err := l.TakeOnce(t.Context(), headgate.Terms{ID: "a"}, check); err != nil || told != 1 {
		t.Errorf("take once: told %d times, error %v", told, err)
	}
	r, _, err := l.Reserve(t.Context(), headgate.Terms{}, check)
	if err != nil || told != 2 {
		t.Fatalf("reserve: told %d times, error %v", told, err)
	}
	if found, err := l.Recall(t.Context(), r.ID); err != nil || found.ID != r.ID {
		t.Errorf("recall: %+v, %v", found, err)
	}
	if v, err := l.Settle(t.Context(), r, 1); err != nil || v.Decisions[0].Remaining != 5 || told != 2 {
		t.Errorf("settle: %+v, told %d times, error %v", v, told, err)
	}
}
