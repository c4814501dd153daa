package lease_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/layered/lease"
	"github.com/headgate/headgate/store/memory"
)

// warmLease takes single units of so many keys until each has a lease.
func warmLease(t *testing.T, s headgate.Store, keys int) {
	t.Helper()
	rule := headgate.MustRule("r", headgate.Sliding(100_000, time.Hour))
	for i := range keys {
		check := []headgate.Check{{Rule: rule, Key: fmt.Sprint("k", i), Hints: headgate.Hints{Consistency: headgate.Leased}}}
		for range 12 {
			if _, err := s.Take(t.Context(), headgate.OpTake, check, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLeaseCloseReturnsAll: more leases are given back at the end than may wait to be.
func TestLeaseCloseReturnsAll(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		l := openUnclosed(t, memory.New(), lease.Options{})
		warmLease(t, l.Store(), 3000)
		if held := l.Stats().Held; held < 3000 {
			t.Errorf("%d units are held", held)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if s := l.Stats(); s.Lost != 0 || s.Held != 0 || s.Taken != s.Served+s.Returned {
			t.Errorf("not all was given back: %+v", s)
		}
	})
}

// slowToReturn is a store whose refunds take a while, unless they are cut off.
type slowToReturn struct {
	headgate.Store
	begun chan struct{}
}

func (s *slowToReturn) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if op == headgate.OpRefund {
		select {
		case s.begun <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return dst, fmt.Errorf("%w: %w", headgate.ErrUnavailable, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return s.Store.Take(ctx, op, checks, dst)
}

// TestLeaseCloseWhileReturning: units that are on their way back when the lease ends
// arrive, or Close says that they did not.
func TestLeaseCloseWhileReturning(t *testing.T) {
	for _, patient := range []bool{true, false} {
		bubbletest.Test(t, func(t *testing.T) {
			store := &slowToReturn{memory.New(), make(chan struct{})}
			l := openUnclosed(t, store, lease.Options{})
			warmLease(t, l.Store(), 1)
			<-store.begun
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if !patient {
				cancel()
			}
			err := l.Close(ctx)
			if s := l.Stats(); (err == nil) != patient || (s.Lost == 0) != patient {
				t.Errorf("patient %v: %v, %+v", patient, err, s)
			}
		})
	}
}

// slowToTake is a store that takes a while to take units of one rule.
type slowToTake struct {
	headgate.Store
	rule *headgate.Rule
}

func (s *slowToTake) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if checks[0].Rule == s.rule {
		time.Sleep(100 * time.Millisecond)
	}
	return s.Store.Take(ctx, op, checks, dst)
}

// TestLeaseCloseBeforeDenial: units that a request had set aside, and puts back after the layer
// was closed, are counted: nobody gives them back.
func TestLeaseCloseBeforeDenial(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		leased := headgate.Check{Rule: headgate.MustRule("r", headgate.Sliding(100_000, time.Hour)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}
		strict := headgate.Check{Rule: headgate.MustRule("strict", headgate.Sliding(1, time.Hour)), Cost: 2}
		l := openUnclosed(t, &slowToTake{memory.New(), strict.Rule}, lease.Options{})
		for l.Stats().Held == 0 {
			layertest.Take(t, l.Store(), leased)
		}
		served := l.Stats().Served
		denied := make(chan bool)
		go func() {
			d, err := l.Store().Take(context.Background(), headgate.OpTake, []headgate.Check{leased, strict}, nil)
			denied <- err == nil && len(d) == 2 && d[0].Source == headgate.SourceLease && !d[1].Allowed
		}()
		time.Sleep(time.Millisecond)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if !<-denied {
			t.Fatal("the request was not denied")
		}
		if s := l.Stats(); s.Lost != 1 || s.Taken != served+s.Returned+s.Lost {
			t.Errorf("%+v; %d were served, and 1 is lost", s, served)
		}
	})
}

// TestLeaseManyRules: a key whose limit was used up is leased again when it is free,
// although so many rules came in between that the plan of its own was forgotten.
func TestLeaseManyRules(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		store := memory.New()
		l := open(t, store, lease.Options{})
		rule := headgate.MustRule("r", headgate.PerSecond(10_000))
		leased := func(requests int) (n int) {
			for range requests {
				if layertest.Take(t, l.Store(), headgate.Check{Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}}).Decisions[0].Source == headgate.SourceLease {
					n++
				}
				time.Sleep(200 * time.Microsecond)
			}
			return n
		}
		leased(3000)
		if _, err := store.Take(t.Context(), headgate.OpCharge, []headgate.Check{{Rule: l.Enforced(rule), Key: "k", Cost: 18_000}}, nil); err != nil {
			t.Fatal(err)
		}
		leased(500) // The units that are held, and then those of the store one by one.
		for i := range 4200 {
			layertest.Take(t, l.Store(), headgate.Check{Rule: headgate.MustRule(fmt.Sprint("r", i), headgate.PerSecond(10_000)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Leased}})
		}
		leased(10_000)
		if n := leased(1000); n < 900 {
			t.Errorf("%d of 1,000 requests were leased", n)
		}
	})
}
