package inprogress

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/flow"
)

var waitBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond,
	500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second,
}

// WaitBounds are the upper bounds of the times that [Stats].Waits counts, in ascending order.
func WaitBounds() []time.Duration { return slices.Clone(waitBounds[:]) }

// Stats is a snapshot of one rule's bound.
type Stats struct {
	// Rule is the rule's name.
	Rule string
	// Stats has the numbers of the permits. Its Limit is the largest of the rule's.
	flow.Stats
	// Shared says that all processes count together. The numbers are those of this process. Lost
	// counts the permits that were lost while they were held.
	Shared bool
	Lost   uint64
	// Refused counts the requests that got no permit, by the reason. ShadowRefused counts those
	// under rules in shadow that would have got none.
	Refused, ShadowRefused [flow.Reasons]uint64
	// Waits counts how long requests waited, by [WaitBounds], if the rule lets them wait. The last
	// count is for longer times. WaitSum is the sum of the times.
	Waits   [len(waitBounds) + 1]uint64
	WaitSum time.Duration
}

// counts are what the permits do not count themselves.
type counts struct {
	refused, shadow [flow.Reasons]atomic.Uint64
	waits           [len(waitBounds) + 1]atomic.Uint64
	waitSum         atomic.Int64
}

func (c *counts) refuse(reason flow.Reason, shadow bool) {
	if shadow {
		c.shadow[reason].Add(1)
	} else {
		c.refused[reason].Add(1)
	}
}

func (c *counts) waited(d time.Duration) {
	i := 0
	for i < len(waitBounds) && d > waitBounds[i] {
		i++
	}
	c.waits[i].Add(1)
	c.waitSum.Add(int64(d))
}

// Stats returns a snapshot of every bound that is kept, in the order of the rules' names.
func (k *Keeper) Stats() []Stats {
	now := *k.kept.Load()
	all := make([]Stats, 0, len(now))
	for name, one := range now {
		s := Stats{Rule: name, Stats: one.gate.Stats(), WaitSum: time.Duration(one.waitSum.Load())}
		if one.all != nil {
			all := one.all.Stats()
			s.Stats, s.Shared, s.Lost = all.Stats, true, all.Lost
		}
		for i := range s.Refused {
			s.Refused[i], s.ShadowRefused[i] = one.refused[i].Load(), one.shadow[i].Load()
		}
		for i := range s.Waits {
			s.Waits[i] = one.waits[i].Load()
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Stats) int { return strings.Compare(a.Rule, b.Rule) })
	return all
}

// Uses adds the keys of a rule that are in use by this process to a list, and reports whether
// the rule has Shared.
func (k *Keeper) Uses(rule string, to *flow.Uses) (shared bool) {
	one := (*k.kept.Load())[rule]
	switch {
	case one == nil:
	case one.all != nil:
		one.all.Uses(to)
		return true
	default:
		one.gate.Uses(to)
	}
	return false
}

// InUse is how many permits of this process are taken under the rule and the key. It is zero for a
// rule with Shared.
func (k *Keeper) InUse(rule, key string) int64 {
	if one := (*k.kept.Load())[rule]; one != nil {
		return one.gate.InUse(key)
	}
	return 0
}
