package policy

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate"
)

// The bounds of a [Set].
const (
	// MaxRules is how many rules a set may have.
	MaxRules = 10_000
	// MaxConditions is how many conditions one rule may have.
	MaxConditions = 32
)

// Rule is one rule of a policy: what it applies to, what it counts by, and its
// limits.
type Rule struct {
	// Name is the name that counters are kept under: that of Limits, which it
	// may be left out for.
	Name string
	// Match has the conditions that must all hold. Without any, the rule
	// applies to every request.
	Match []Condition
	// Per has the parts of the key that counters are kept for. Without any,
	// there is one counter for all. The rule does not bind a request that lacks
	// one of the entries.
	Per []Part
	// Limits are the limits, compiled. Required.
	Limits *headgate.Rule
	// Cost is what the request's own cost is multiplied by: 1 to
	// headgate.MaxCount. Zero means one.
	Cost int64
	// Direct marks a rule that no descriptor matches: callers name it and the
	// key themselves. It has neither Match nor Per.
	Direct bool
	// Pos is where the rule was written, for messages.
	Pos Position
}

// factor is Cost with its default applied.
func (r *Rule) factor() int64 { return max(r.Cost, 1) }

// clone returns a copy that is independent of the caller's slices.
func (r *Rule) clone() Rule {
	c := *r
	c.Match = slices.Clone(r.Match)
	for i := range c.Match {
		c.Match[i].Equals = slices.Clone(c.Match[i].Equals)
		c.Match[i].Prefixes = slices.Clone(c.Match[i].Prefixes)
	}
	c.Per = slices.Clone(r.Per)
	return c
}

// check reports everything that is wrong with the rule.
func (r *Rule) check(bad func(field, format string, args ...any)) {
	switch {
	case r.Limits == nil:
		bad("limits", "there are no limits; make them with headgate.NewRule")
	case r.Name != r.Limits.Name():
		bad("name", "the name is %q but the limits were made for %q; counters can be kept under one name only", r.Name, r.Limits.Name())
	}
	if r.Cost < 0 || r.Cost > headgate.MaxCount {
		bad("cost", "cost is %d, must be 1 to %d", r.Cost, headgate.MaxCount)
	}
	if r.Direct && len(r.Match)+len(r.Per) > 0 {
		bad("match", "there are %d conditions and %d key parts, but a direct rule is reached by name and key only", len(r.Match), len(r.Per))
	}
	if len(r.Match) > MaxConditions {
		bad("match", "there are %d conditions, must be at most %d", len(r.Match), MaxConditions)
	}
	for i := range r.Match {
		if p := r.Match[i].check(); p != "" {
			bad(fmt.Sprintf("match.%d", i), "%s", p)
		}
	}
	if len(r.Per) > MaxParts {
		bad("per", "there are %d key parts, must be at most %d", len(r.Per), MaxParts)
	}
	for i, p := range r.Per {
		field := fmt.Sprintf("per.%d", i)
		if problem := p.check(); problem != "" {
			bad(field, "%s", problem)
		}
		for j, earlier := range r.Per[:i] {
			if earlier.Entry == p.Entry {
				bad(field, "entry %q is already part %d of the key; leave one of them out", p.Entry, j+1)
				break
			}
		}
	}
}
