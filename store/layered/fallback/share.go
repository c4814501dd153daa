package fallback

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// shares are this node's shares of rules, under the rules' own names, for one number of nodes.
// They are counted in the same counters as those for any other number: a limit's slot does
// not depend on its count.
type shares struct {
	nodes int64
	*layer.Derived[*headgate.Rule]
}

func newShares(nodes int64) *shares {
	return &shares{nodes, layer.NewDerived(func(rule *headgate.Rule) *headgate.Rule { return divide(rule, nodes) })}
}

// divide returns the rule with its counts and bursts divided by the number of nodes, rounded
// down, but at least one. A penalty counts denials, not units, and stays as it is.
func divide(rule *headgate.Rule, nodes int64) *headgate.Rule {
	if nodes <= 1 {
		return rule
	}
	limits := append([]headgate.Limit(nil), rule.Limits()...)
	for i := range limits {
		l := &limits[i]
		if l.Algorithm == headgate.Penalty {
			continue
		}
		l.Count = max(1, l.Count/nodes)
		if l.Burst != 0 {
			l.Burst = max(1, l.Burst/nodes)
		}
	}
	share, err := headgate.NewRule(rule.Name(), limits...)
	if err == nil {
		return share
	}
	// The parts of valid limits are valid, except for a bucket that takes nearly
	// headgate.MaxRefill to fill and whose count was rounded down further than its burst.
	for i := range limits {
		limits[i].Burst = min(limits[i].Burst, limits[i].Count)
	}
	return headgate.MustRule(rule.Name(), limits...)
}
