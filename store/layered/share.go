package layered

import (
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
)

// maxShares bounds the rules whose shares are kept. Policies that are reloaded
// leave rules behind that nobody asks about any more, and some doors make rules of
// what their callers say; beyond the bound all are forgotten, and those in use are
// made again.
const maxShares = 4096

// shares are the shares of rules, for one number of nodes. The counters that they
// are counted in are those of any other number: a limit's slot does not depend on
// its count.
type shares struct {
	nodes int64
	size  atomic.Int64
	rules sync.Map // *headgate.Rule → *headgate.Rule
}

// of returns this node's share of a rule, under the rule's own name.
func (s *shares) of(rule *headgate.Rule) *headgate.Rule {
	if known, ok := s.rules.Load(rule); ok {
		return known.(*headgate.Rule)
	}
	share := divide(rule, s.nodes)
	if s.size.Add(1) > maxShares {
		s.rules.Clear()
		s.size.Store(1)
	}
	s.rules.Store(rule, share)
	return share
}

// divide returns the rule with limits of which so many together come to the
// rule's own, rounded down, but one at least. A penalty counts denials, not units,
// and stays as it is.
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
	// What was whole is whole in parts, but for a bucket that takes nearly
	// headgate.MaxRefill to fill and whose count was rounded more than its burst.
	for i := range limits {
		limits[i].Burst = min(limits[i].Burst, limits[i].Count)
	}
	return headgate.MustRule(rule.Name(), limits...)
}
