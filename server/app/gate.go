package app

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/httpapi"
)

// gate is what every transport asks: the policy in force over the store.
type gate struct {
	source *source
	store  headgate.Store
}

// Policy returns the rules in force.
func (g *gate) Policy() httpapi.Policy { return *g.source.active.Load() }

// Take is the store's.
func (g *gate) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return g.store.Take(ctx, op, checks, dst)
}

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
