package lease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/layered/lease"
)

// TestLeaseWhileTheStoreIsGone: held units are served until their end, and then the
// error is the store's.
func TestLeaseWhileTheStoreIsGone(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := layertest.NewScripted()
		l := openUnclosed(t, store, lease.Options{})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Per(1_000_000, time.Hour)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}
		hot(t, l.Store(), c, 500)
		held := l.HeldOf(c.Rule, "k")
		store.Feel(layertest.Refuses)
		served := int64(0)
		for {
			_, err := l.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil)
			if err != nil {
				if !errors.Is(err, headgate.ErrUnavailable) {
					t.Error(err)
				}
				break
			}
			served++
		}
		if served != held || served == 0 {
			t.Errorf("%d served of %d held", served, held)
		}
		store.Feel(layertest.Hangs)
		began := time.Now()
		if _, err := l.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil); !errors.Is(err, headgate.ErrUnavailable) || time.Since(began) > 3*layertest.Deadline {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		store.Feel(layertest.Well)
		time.Sleep(time.Second)
		if sources := hot(t, l.Store(), c, 500); sources[headgate.SourceLease] == 0 {
			t.Errorf("nothing is leased when the store is back: %v", sources)
		}
		store.Feel(layertest.Refuses)
		if err := l.Close(t.Context()); err == nil {
			t.Error("nothing could be given back, and close does not say so")
		}
		if _, err := l.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("after close: %v", err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
}

// TestLeaseOverFallback: what is decided without the store is no lease.
func TestLeaseOverFallback(t *testing.T) {
	for _, onError := range []headgate.OnError{headgate.OnErrorAllow, headgate.OnErrorLocal} {
		bubbletest.Test(t, func(t *testing.T) {
			primary := layertest.NewScripted()
			f := layertest.Fallback(t, primary, fallback.Options{Nodes: 2})
			l := openUnclosed(t, f.Store(), lease.Options{Nodes: func() int64 { return 2 }})
			c := headgate.Check{Rule: headgate.MustRule("r", headgate.Per(100_000, time.Hour)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased, OnError: onError}}
			if sources := hot(t, l.Store(), c, 500); sources[headgate.SourceLease] == 0 {
				t.Fatalf("decided by: %v", sources)
			}
			layertest.Fail(t, f, primary, layertest.Refuses)
			time.Sleep(2 * time.Second)
			taken := l.Stats().Taken
			sources := hot(t, l.Store(), c, 500)
			if want := map[headgate.OnError]headgate.Source{headgate.OnErrorAllow: headgate.SourceOpen, headgate.OnErrorLocal: headgate.SourceLocal}[onError]; sources[want] != 500 {
				t.Errorf("%v: decided by %v", onError, sources)
			}
			if now := l.Stats().Taken; now != taken {
				t.Errorf("%v: %d units were taken without the store", onError, now-taken)
			}
			layertest.Recover(t, f, primary)
			if sources := hot(t, l.Store(), c, 1000); sources[headgate.SourceLease] == 0 {
				t.Errorf("%v: nothing is leased when the store is back: %v", onError, sources)
			}
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLeaseLosesNothingUnasked: units that nobody was asked for, since the breaker was
// open, are not lost. Those of calls that failed may be.
func TestLeaseLosesNothingUnasked(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{})
		l := open(t, f.Store(), lease.Options{})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Per(1_000_000, time.Hour)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased, OnError: headgate.OnErrorDeny}}
		hot(t, l.Store(), c, 500)
		primary.Feel(layertest.Refuses)
		ask := func(n int) {
			for range n {
				_, _ = l.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil)
				time.Sleep(100 * time.Microsecond)
			}
		}
		for l.Stats().Lost == 0 { // what is held is served before
			ask(10)
		}
		for f.Stats().State != fallback.Open {
			ask(10)
		}
		time.Sleep(time.Second) // what was on its way has failed
		lost, calls := l.Stats().Lost, primary.Calls.Load()
		ask(50_000)
		if more := l.Stats().Lost - lost; more != 0 || primary.Calls.Load() != calls {
			t.Errorf("%d units were lost by %d calls", more, primary.Calls.Load()-calls)
		}
		layertest.Recover(t, f, primary)
		if sources := hot(t, l.Store(), c, 1000); sources[headgate.SourceLease] == 0 {
			t.Errorf("nothing is leased when the store is back: %v", sources)
		}
	})
}
