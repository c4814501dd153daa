package app

import (
	"context"

	"github.com/headgate/headgate"
)

// probe asks a store for a decision that charges nothing: what answers it can
// decide. The rule's name is not one that a policy is likely to have, and would
// not be changed if it were.
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

// newReady makes what tells whether the service can decide. A store that does not
// answer does so for all servers at the same time, most likely: if each of them said
// that it is not ready, those requests would be lost too that need no store. So a
// server is ready as long as there are rules that answer without it.
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
		if allow, deny, local := modes(a.Policy().Rules(), a.without.otherwise); allow+local > 0 || deny == 0 {
			return nil
		}
		return err
	}
}
