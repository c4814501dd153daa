package app

import (
	"context"

	"github.com/headgate/headgate"
)

// probe asks a store for a decision that charges nothing. A store that answers it can decide. A
// policy is unlikely to have a rule of the same name, and the rule's counters would not change if
// it had.
type probe struct {
	store headgate.Store
	check headgate.Check
}

func newProbe(store headgate.Store) *probe {
	return &probe{store, headgate.Check{Rule: headgate.MustRule("headgate.readyz", headgate.PerSecond(1)), Hints: headgate.Hints{OnError: headgate.OnErrorDeny}}}
}

func (p *probe) ready(ctx context.Context) error {
	_, err := p.store.Take(ctx, headgate.OpPeek, []headgate.Check{p.check}, nil)
	return err
}

// newReady makes the function that says whether the service can decide. Mostly a store fails for
// all servers at once. If all of them then said that they were not ready, requests that can be
// decided without the store would be lost, too. So a server is ready as long as some rule decides
// without the store. One whose store was away at the start is not ready until the store is there:
// its settings may be wrong, and nothing has shown that they are right.
func (a *App) newReady() func(context.Context) error {
	probe := newProbe(a.decisive())
	return func(ctx context.Context) error {
		if a.draining.Load() {
			return errDraining
		}
		err := probe.ready(ctx)
		if err == nil || a.without == nil {
			return err
		}
		if l, ok := a.store.Store.(interface{ away() bool }); ok && l.away() {
			return err
		}
		if allow, deny, local := modes(a.Policy().Rules(), a.without.otherwise); allow+local > 0 || deny == 0 {
			return nil
		}
		return err
	}
}
