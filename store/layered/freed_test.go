package layered_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/layered/lease"
)

// TestFreed tries every way by which units become free with every layer that remembers
// something of a key, on servers with all layers over one store. A server denies a key; units
// of it come back at another server, which knows nothing of the key and whose flags are off.
// The first server must admit again within what docs/consistency.md says.
func TestFreed(t *testing.T) {
	const (
		message = 20 * time.Millisecond // to arrive, and to wait for the one before it
		expires = 3 * time.Second       // of reservations
		trust   = denycache.DefaultTrust
		reports = 4 * async.DefaultInterval // until an asynchronous server hears of it
		refunds = 4 * async.DefaultInterval // until an asynchronous server sends a refund
	)
	limit := func(count int64) headgate.Limit {
		return headgate.Limit{Algorithm: headgate.FixedWindow, Count: count, Period: time.Hour, Align: headgate.AlignFirst}
	}
	rule := headgate.MustRule("r", limit(100))
	penal := headgate.MustRule("r", limit(100), headgate.Blocking(1, time.Minute, time.Hour, time.Hour))
	// scene is what a way of freeing units needs.
	type scene struct {
		fresh    headgate.Ledger
		check    headgate.Check
		reserved headgate.Reservation
	}
	settle := func(units int64) func(context.Context, *scene) error {
		return func(ctx context.Context, s *scene) error {
			// As somebody does who knows no more of it than its id.
			r, err := s.fresh.Recall(ctx, s.reserved.ID)
			if err != nil {
				return err
			}
			_, err = s.fresh.Settle(ctx, r, []int64{units}, nil)
			return err
		}
	}
	op := func(op headgate.Op) func(context.Context, *scene) error {
		return func(ctx context.Context, s *scene) error {
			_, err := s.fresh.Take(ctx, op, []headgate.Check{s.check}, nil)
			return err
		}
	}
	// changed has the server that denies go on with another rule of the name.
	changed := func(limits ...headgate.Limit) func(context.Context, *scene) error {
		return func(_ context.Context, s *scene) error {
			s.check.Rule = headgate.MustRule("r", limits...)
			return nil
		}
	}
	type way struct {
		name string
		free func(context.Context, *scene) error
	}
	ways := []way{
		{"refund", op(headgate.OpRefund)},
		{"reset", op(headgate.OpReset)},
		{"settle", settle(10)},
		{"cancel", settle(0)},
		{"expiry", func(context.Context, *scene) error { time.Sleep(expires); return nil }},
		{"raise", changed(limit(200))},
		{"override", changed(headgate.Sliding(500, time.Minute), limit(300))},
	}
	for _, layer := range []struct {
		name        string
		consistency headgate.Consistency
		cache       headgate.DenyCache
		all         bool // the flag of the server that denies
		rule        *headgate.Rule
		within      map[string]time.Duration // by way; zero is at once
		denied      []string                 // ways that free nothing
	}{
		{name: "strict", rule: rule},
		{name: "deny cache", rule: rule, cache: headgate.DenyCacheOn, within: map[string]time.Duration{
			"refund": message, "reset": message, "settle": message, "cancel": message, "expiry": trust,
		}},
		{name: "deny cache by flag", rule: rule, all: true, within: map[string]time.Duration{
			"refund": message, "reset": message, "settle": message, "cancel": message, "expiry": trust,
		}},
		{
			name: "block", rule: penal, within: map[string]time.Duration{"reset": message},
			denied: []string{"refund", "settle", "cancel", "expiry"},
		},
		{name: "leased", consistency: headgate.Leased, rule: rule},
		{name: "leased, deny cache", consistency: headgate.Leased, rule: rule, cache: headgate.DenyCacheOn, within: map[string]time.Duration{
			"refund": message, "reset": message, "settle": message, "cancel": message, "expiry": denycache.LeasedTrust,
		}},
		{name: "async", consistency: headgate.Async, rule: rule, within: map[string]time.Duration{
			"refund": refunds + reports, "reset": reports, "settle": reports, "cancel": reports, "expiry": reports, "raise": reports, "override": reports,
		}},
		{name: "async, deny cache", consistency: headgate.Async, rule: rule, cache: headgate.DenyCacheOn, within: map[string]time.Duration{
			"refund": refunds + reports, "reset": reports, "settle": reports, "cancel": reports, "expiry": reports, "raise": reports, "override": reports,
		}},
	} {
		for _, w := range ways {
			t.Run(layer.name+" "+w.name, func(t *testing.T) {
				bubbletest.Test(t, func(t *testing.T) {
					store, bus := layertest.NewScripted(), layertest.NewWire(time.Millisecond)
					server := func(all bool) headgate.Ledger {
						f := layertest.Fallback(t, store, fallback.Options{Default: headgate.OnErrorLocal})
						inside := f.Store()
						for _, around := range []func() (layered.Layer, error){
							func() (layered.Layer, error) { return lease.New(inside, lease.Options{}) },
							func() (layered.Layer, error) { return async.New(inside, async.Options{}) },
							func() (layered.Layer, error) {
								return denycache.New(inside, denycache.Options{All: all, Bus: bus})
							},
						} {
							layer, err := around()
							if err != nil {
								t.Fatal(err)
							}
							t.Cleanup(func() {
								if err := layer.Close(context.Background()); err != nil {
									t.Error(err)
								}
							})
							inside = layer.Store()
						}
						return inside.(headgate.Ledger)
					}
					denies, fresh, other := server(layer.all), server(false), server(false)
					bubbletest.Wait() // all listen
					s := &scene{fresh: fresh, check: headgate.Check{Rule: layer.rule, Key: "k", Hints: headgate.Hints{Consistency: layer.consistency, DenyCache: layer.cache}}}
					half := s.check
					half.Cost, half.GiveBack = 50, true
					var err error
					if s.reserved, _, err = other.Reserve(t.Context(), headgate.Terms{For: expires}, []headgate.Check{half}, nil); err != nil {
						t.Fatal(err)
					}
					start, spent := time.Now(), layertest.Spend(t, denies, s.check)
					if spent != 50 {
						t.Fatalf("%d units are left of 50", spent)
					}
					for range 20 { // what is remembered is, and what is told is told
						if layertest.Take(t, denies, s.check).Allowed {
							t.Fatal("admitted before anything is free")
						}
						time.Sleep(30 * time.Millisecond)
					}
					if time.Since(start) > expires/2 {
						t.Fatal("the reservation has expired too early")
					}
					s.check.Cost = 10
					if err := w.free(t.Context(), s); err != nil {
						t.Fatal(err)
					}
					s.check.Cost = 0
					freed := time.Now()
					for _, name := range layer.denied {
						if name == w.name {
							time.Sleep(time.Minute)
							if layertest.Take(t, denies, s.check).Allowed {
								t.Error("admitted, though the key is blocked")
							}
							return
						}
					}
					for !layertest.Take(t, denies, s.check).Allowed {
						if waited := time.Since(freed); waited >= layer.within[w.name] {
							t.Fatalf("still denied %v after units were freed, at most %v is promised", waited, layer.within[w.name])
						}
						time.Sleep(time.Millisecond)
					}
				})
			})
		}
	}
}
