package fallback_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/memory"
)

// remaining is what a verdict's only limit has left.
func remaining(decisions []headgate.Decision) int64 { return decisions[0].Remaining }

func TestLedgerOfAStoreThatIsWell(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal})
		l := f.Store().(headgate.Ledger)
		checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerHour(10)), Key: "k", Cost: 4}}
		terms := headgate.Terms{ID: "one"}
		for range 3 {
			d, err := l.TakeOnce(t.Context(), terms, checks, nil)
			if err != nil || remaining(d) != 6 || d[0].Source != headgate.SourceStore {
				t.Fatalf("got %+v, %v", d, err)
			}
		}
		r, _, err := l.Reserve(t.Context(), headgate.Terms{}, checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := l.Recall(t.Context(), r.ID); err != nil || again.ID != r.ID {
			t.Errorf("recall: %+v, %v", again, err)
		}
		if d, err := l.Settle(t.Context(), r, []int64{1}, nil); err != nil || remaining(d) != 5 {
			t.Errorf("settle: %+v, %v", d, err)
		}
		if _, err := l.Settle(t.Context(), r, []int64{2}, nil); !errors.Is(err, headgate.ErrConflict) {
			t.Errorf("settle otherwise: %v", err)
		}
		if _, err := l.Recall(t.Context(), "none"); !errors.Is(err, headgate.ErrNoReservation) {
			t.Errorf("recall of none: %v", err)
		}
		// The local counters have followed: three times one, and what was settled.
		primary.Feel(layertest.Refuses)
		layertest.Fail(t, f, primary, layertest.Refuses)
		if got := layertest.Spend(t, l, headgate.Check{Rule: checks[0].Rule, Key: "k"}); got > 5 {
			t.Errorf("%d units left of 5", got)
		}
		if s := f.Stats(); s.Failures == 0 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestLedgerOfAStoreThatIsGone(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal, Node: "node-a-of-two"})
		other := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal, Node: "node-b-of-two"})
		l := f.Store().(headgate.Ledger)
		checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerHour(10)), Key: "k", Cost: 4}}
		before, _, err := l.Reserve(t.Context(), headgate.Terms{ID: "before"}, checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		layertest.Fail(t, f, primary, layertest.Refuses)
		for range 3 {
			d, err := l.TakeOnce(t.Context(), headgate.Terms{ID: "one"}, checks, nil)
			if err != nil || remaining(d) != 2 || d[0].Source != headgate.SourceLocal {
				t.Fatalf("got %+v, %v; want the same answer each time", d, err)
			}
		}
		checks[0].Key, checks[0].Cost = "another", 5
		r, d, err := l.Reserve(t.Context(), headgate.Terms{ID: "two"}, checks, nil)
		if err != nil || remaining(d) != 5 || d[0].Source != headgate.SourceLocal || !strings.HasPrefix(r.ID, "two") || r.ID == "two" {
			t.Fatalf("reserve: %+v, %+v, %v", r, d, err)
		}
		if again, err := l.Recall(t.Context(), r.ID); err != nil || again.ID != r.ID || len(again.Units(3)) != 1 {
			t.Errorf("recall: %+v, %v", again, err)
		}
		if _, err := other.Store().(headgate.Ledger).Recall(t.Context(), r.ID); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("recall by another node while the store is gone: %v", err)
		}
		if _, err := l.Recall(t.Context(), "before"); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("recall of what the store knows: %v", err)
		}
		if _, err := l.Settle(t.Context(), before, []int64{1}, nil); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("settle of what the store knows: %v", err)
		}
		for range 2 {
			if d, err := l.Settle(t.Context(), r, []int64{2}, nil); err != nil || remaining(d) != 8 || d[0].Source != headgate.SourceLocal {
				t.Errorf("settle: %+v, %v", d, err)
			}
		}
		layertest.Recover(t, f, primary)
		time.Sleep(10 * time.Second)
		// Two units, as settled, not five; and what was settled cannot be again.
		if got := used(t, primary, headgate.Check{Rule: checks[0].Rule, Key: "another"})[0]; got != 2 {
			t.Errorf("the store counts %d units, want 2", got)
		}
		if _, err := l.Settle(t.Context(), r, []int64{3}, nil); !errors.Is(err, headgate.ErrConflict) {
			t.Errorf("settle otherwise: %v", err)
		}
		if _, err := other.Store().(headgate.Ledger).Recall(t.Context(), r.ID); !errors.Is(err, headgate.ErrNoReservation) {
			t.Errorf("recall by another node: %v", err)
		}
		if d, err := l.Settle(t.Context(), before, []int64{1}, nil); err != nil || d[0].Source != headgate.SourceStore {
			t.Errorf("settle of what the store knows: %+v, %v", d, err)
		}
	})
}

// TestReservationsBeyondTheEstimate owe what they cost more.
func TestReservationsBeyondTheEstimate(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal})
		l := f.Store().(headgate.Ledger)
		checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.Sliding(100, time.Hour)), Key: "k", Cost: 5}}
		layertest.Fail(t, f, primary, layertest.Refuses)
		r, _, err := l.Reserve(t.Context(), headgate.Terms{}, checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Settle(t.Context(), r, []int64{30}, nil); err != nil {
			t.Fatal(err)
		}
		layertest.Recover(t, f, primary)
		time.Sleep(10 * time.Second)
		if got := used(t, primary, checks[0])[0]; got != 30 {
			t.Errorf("the store counts %d units, want 30", got)
		}
	})
}

// TestNothingToSettle: of what nobody counted, or a store that is no ledger.
func TestNothingToSettle(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f, err := fallback.New(primary, fallback.Options{Local: plain{memory.New()}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close(context.Background()) })
		l := f.Store().(headgate.Ledger)
		layertest.Fail(t, f, primary, layertest.Refuses)
		for onError, want := range map[headgate.OnError]headgate.Source{headgate.OnErrorAllow: headgate.SourceOpen, headgate.OnErrorLocal: headgate.SourceLocal} {
			checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerHour(10)), Key: "k", Hints: headgate.Hints{OnError: onError}}}
			r, d, err := l.Reserve(t.Context(), headgate.Terms{ID: "x"}, checks, nil)
			if err != nil || r.ID != "" || !d[0].Allowed || d[0].Source != want {
				t.Errorf("%v: %+v, %+v, %v", onError, r, d, err)
			}
			if d, err := l.TakeOnce(t.Context(), headgate.Terms{ID: "y"}, checks, nil); err != nil || d[0].Source != want {
				t.Errorf("%v: %+v, %v", onError, d, err)
			}
		}
		if _, _, err := l.Reserve(t.Context(), headgate.Terms{}, []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerHour(10))}}, nil); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("deny: %v", err)
		}
	})
}

// TestLedgerWhileLearning: a node's share binds remembered requests too.
func TestLedgerWhileLearning(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		primary.Lose()
		f := layertest.Fallback(t, primary, fallback.Options{Learn: time.Minute, Nodes: 2})
		l := f.Store().(headgate.Ledger)
		checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerHour(10)), Key: "k", Cost: 3}}
		for i, want := range []headgate.Source{headgate.SourceStore, headgate.SourceLocal} {
			r, d, err := l.Reserve(t.Context(), headgate.Terms{}, checks, nil)
			if err != nil || d[0].Source != want || d[0].Allowed != (i == 0) || (r.ID != "") != (i == 0) {
				t.Errorf("request %d: %+v, %+v, %v", i+1, r, d, err)
			}
		}
	})
}
