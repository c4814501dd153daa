package redis

import (
	"context"

	"github.com/headgate/headgate"
)

// charge carries out OpCharge. To the script it is a refund of less than nothing.
func (s *Store) charge(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	r := headgate.Reservation{Checks: checks}
	units := make([]int64, len(checks))
	for i := range checks {
		units[i] = 2 * checks[i].Units() // as much again
	}
	if s.clustered == nil {
		return s.settle(ctx, &r, units, dst, chargeMode)
	}
	starts := limitStarts(checks)
	all := make([]headgate.Decision, starts[len(checks)])
	groups := s.grouped(checks)
	each(groups, func(_ int, g *group) {
		s.settleGroup(ctx, &r, "", units, g, starts, all, chargeMode)
		if len(g.checks) == 1 || !isTryAgain(g.err) {
			return
		}
		// Its slot is on its way from one node to another, and its keys may be on
		// both.
		g.err = nil
		for i := range g.checks {
			one := group{checks: g.checks[i : i+1], places: g.places[i : i+1]}
			if s.settleGroup(ctx, &r, "", units, &one, starts, all, chargeMode); one.err != nil {
				g.err = one.err
			}
		}
	})
	for i := range groups {
		if groups[i].err != nil {
			return dst, groups[i].err
		}
	}
	return append(dst, all...), nil
}

// limitStarts says where the limits of each check begin among those of all, and at
// last how many there are.
func limitStarts(checks []headgate.Check) []int {
	starts := make([]int, len(checks)+1)
	for i := range checks {
		starts[i+1] = starts[i] + len(checks[i].Rule.Limits())
	}
	return starts
}
