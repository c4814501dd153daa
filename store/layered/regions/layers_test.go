package regions_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/layered/lease"
	"github.com/headgate/headgate/store/memory"
)

// scoped counts the checks that it is asked to decide, and those of them that are not global.
type scoped struct {
	headgate.Store
	all, regional int
}

func (s *scoped) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	for i := range checks {
		if s.all++; checks[i].Scope != headgate.Global {
			s.regional++
		}
	}
	return s.Store.Take(ctx, op, checks, dst)
}

// TestLayersKeepTheScope: what the layers around the shares ask for by themselves is for all regions
// together, as the requests are.
func TestLayersKeepTheScope(t *testing.T) {
	for _, c := range []struct {
		consistency headgate.Consistency
		source      headgate.Source
		around      func(headgate.Store) (layered.Layer, error)
	}{
		{headgate.Leased, headgate.SourceLease, func(s headgate.Store) (layered.Layer, error) { return lease.New(s, lease.Options{}) }},
		{headgate.Async, headgate.SourceAsync, func(s headgate.Store) (layered.Layer, error) { return async.New(s, async.Options{}) }},
	} {
		t.Run(c.consistency.String(), func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				inner := &scoped{Store: memory.New()}
				l, err := c.around(inner)
				if err != nil {
					t.Fatal(err)
				}
				check := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1000)), Key: "k", Hints: headgate.Hints{Consistency: c.consistency, Scope: headgate.Global}}
				served := 0
				for n := range 500 {
					op := headgate.OpTake
					if n%10 == 9 {
						op = headgate.OpRefund
					}
					out, err := l.Store().Take(t.Context(), op, []headgate.Check{check}, nil)
					if err != nil {
						t.Fatal(err)
					}
					if len(out) > 0 && out[0].Source == c.source {
						served++
					}
					time.Sleep(2 * time.Millisecond)
				}
				if err := l.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if served < 100 || inner.all == 0 || inner.regional > 0 {
					t.Errorf("the layer served %d of 500 requests, and %d of the %d checks that it asked for were not global", served, inner.regional, inner.all)
				}
			})
		})
	}
}
