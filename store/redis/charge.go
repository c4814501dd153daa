package redis

import (
	"context"

	"github.com/headgate/headgate"
)

// charge carries out OpCharge. For the script it is a settlement at twice the units, which charges
// them once more.
func (s *Store) charge(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	r := headgate.Reservation{Checks: checks}
	units := make([]int64, len(checks))
	for i := range checks {
		units[i] = 2 * checks[i].Units()
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
		// The slot is being moved, so the keys may be on different nodes.
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

// limitStarts returns, for each check, the index of its first limit among the limits of all checks.
// The last element is their number.
func limitStarts(checks []headgate.Check) []int {
	starts := make([]int, len(checks)+1)
	for i := range checks {
		starts[i+1] = starts[i] + len(checks[i].Rule.Limits())
	}
	return starts
}
