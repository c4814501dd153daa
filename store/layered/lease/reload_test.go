package lease_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/layered/lease"
	"github.com/headgate/headgate/store/memory"
)

// loaded has the checks be as the node's rules say.
func (w *crowd) loaded(n *node, checks []headgate.Check) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range checks {
		if n.strict {
			checks[i].Consistency = headgate.Strict
		}
	}
}

// reload has each node find its rules leased or strict.
func (w *crowd) reload() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		n.strict = w.r.IntN(2) == 0
	}
}

// lateUnits is what docs/consistency.md says may be admitted beyond a limit while servers
// do not agree that a rule is leased: what can be held of it, half, and of a bucket no
// more than it refills meanwhile. What is held of fixed windows ends with them.
func (w *crowd) lateUnits(rule *headgate.Rule) func(*headgate.Limit) int64 {
	hold := w.nodes[0].lease.Hold(rule)
	return func(l *headgate.Limit) int64 {
		switch l.Algorithm {
		case headgate.TokenBucket:
			refilled := (l.Count*hold.Microseconds() + l.Period.Microseconds() - 1) / l.Period.Microseconds()
			return min(refilled, l.Capacity()/2)
		case headgate.SlidingWindow:
			return l.Count / 2
		}
		return 0
	}
}

// TestLeaseReloadHistories: while some servers have a rule leased and others strict, as
// during a reload, a limit is exceeded by no more than docs/consistency.md says.
func TestLeaseReloadHistories(t *testing.T) {
	for seed := range uint64(race.Fewer(leaseHistories / 8)) {
		bubbletest.Test(t, func(t *testing.T) {
			w := newCrowd(t, seed)
			for range 3 {
				w.reload()
				w.play()
			}
			for at, g := range w.of {
				if rule := w.rule(at.rule); rule != nil {
					g.late = w.lateUnits(rule)
				}
			}
			for i, text := range w.finish() {
				if i == 5 {
					break
				}
				t.Errorf("history %d (%d nodes): %s", seed, w.count, text)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// TestLeaseReload: what a server that leases admits as late as it can, and what one that does
// not know of that finds free again meanwhile, is too much together: the bound is no more
// than there is need for.
func TestLeaseReload(t *testing.T) {
	for name, limit := range map[string]headgate.Limit{
		"sliding window": headgate.Sliding(1000, 10*time.Second),
		"bucket":         {Count: 1000, Period: time.Second, Burst: 1000},
		"fixed window":   {Algorithm: headgate.FixedWindow, Count: 1000, Period: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				store := memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() }))
				lease := openUnclosed(t, store, lease.Options{})
				defer lease.Close(t.Context())
				rule := headgate.MustRule("r", limit)
				late := (&crowd{nodes: []*node{{lease: lease}}}).lateUnits(rule)(&rule.Limits()[0])
				hold := lease.Hold(rule)
				var g ledgerOf
				take := func(consistency headgate.Consistency, units int64) bool {
					checks := []headgate.Check{{Rule: rule, Key: "k", Cost: units, Hints: headgate.Hints{Consistency: consistency}}}
					out, err := lease.Store().Take(t.Context(), headgate.OpTake, checks, nil)
					if err != nil {
						t.Fatal(err)
					}
					if out[0].Allowed {
						g.admit(time.Now().UnixMicro(), units)
					}
					return out[0].Allowed
				}
				all := func(consistency headgate.Consistency) {
					for units := int64(64); units > 0; {
						if !take(consistency, units) {
							units /= 2
						}
					}
				}
				// At the beginning of a window it is asked for ever more.
				time.Sleep(time.Until(time.Now().Truncate(limit.Period).Add(limit.Period)))
				for cost := int64(1); cost < 32; cost *= 2 {
					for range 9 {
						take(headgate.Leased, cost)
					}
					time.Sleep(5 * time.Millisecond)
				}
				if limit.Algorithm == headgate.TokenBucket { // What was admitted is refilled, and then some is taken anew.
					time.Sleep(limit.Period * 3 / 2)
					take(headgate.Leased, 1)
				}
				held := lease.HeldOf(rule, "k")
				if held < 20 {
					t.Fatalf("%d units are held", held)
				}
				time.Sleep(hold * 9 / 10)
				if limit.Algorithm == headgate.SlidingWindow { // Those that are held leave the window as they are admitted.
					for lease.HeldOf(rule, "k") > 0 {
						take(headgate.Leased, 1)
					}
					time.Sleep(limit.Period - hold/2)
				}
				all(headgate.Strict)
				for lease.HeldOf(rule, "k") > 0 {
					take(headgate.Leased, 1)
				}
				within, beyond := g.over(&rule.Limits()[0]), int64(0)
				for within != "" {
					beyond++
					g.late = func(*headgate.Limit) int64 { return beyond }
					within = g.over(&rule.Limits()[0])
				}
				t.Logf("%d held, %d too many, at most %d", held, beyond, late)
				if beyond > min(held, late) || limit.Algorithm != headgate.FixedWindow && beyond == 0 {
					t.Errorf("%d units were admitted too much, with %d held; want some, and at most %d", beyond, held, late)
				}
			})
		})
	}
}
