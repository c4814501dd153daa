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
	return &probe{store, headgate.Check{Rule: headgate.MustRule("headgate.readyz", headgate.PerSecond(1))}}
}

func (p *probe) ready(ctx context.Context) error {
	_, err := p.store.Take(ctx, headgate.OpPeek, []headgate.Check{p.check}, nil)
	return err
}
