package policy

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy/models"
)

// Binding says whether one rule binds a request. If it does, Checks or Bounds are set. If not, one
// of the later fields has the first reason.
type Binding struct {
	// Rule is the rule. It is shared and must not be changed.
	Rule *Rule
	// Checks are the checks by which the rule binds the request: one, or two while the hash key is
	// being changed, the second under the old key.
	Checks []headgate.Check
	// Bounds are the bounds on what is in progress, one or two in the same way.
	Bounds []Bound
	// Override is the number of the override whose limits apply, from 1. It is zero if none
	// applies.
	Override int
	// Tier is the tier whose limits apply, as [Set.Tier] returns it; empty if the rule
	// has no tariff, or an override applies.
	Tier string

	// Unmet is the first condition of the rule that does not hold.
	Unmet *Condition
	// Lacks is the first entry that the rule counts by and that the request does not have.
	Lacks string
	// NoTier says that the rule has no limits for the request's tier.
	NoTier bool
	// Free says that the request costs nothing under the rule.
	Free bool
	// Err says why the cost under the rule is not known.
	Err error
	// ReplacedBy is the name of the rule that binds the request and replaces this one.
	ReplacedBy string
}

// Inspect says for each rule, in the order of the rules, whether it binds the request, and if not,
// why. It agrees with [Set.DecideUsage] for every request that no list answers and that can be decided.
// It looks at all rules, without the index that Decide uses, so it is too slow to be called for
// each request.
func (s *Set) Inspect(d Descriptor, cost int64, u *models.Usage) []Binding {
	d = s.known(d)
	all := make([]Binding, len(s.rules))
	var checks []headgate.Check
	var bounds []Bound
	for i := range all {
		all[i] = s.inspect(int32(i), d, cost, u)
		checks, bounds = append(checks, all[i].Checks...), append(bounds, all[i].Bounds...)
	}
	for i := range all {
		b := &all[i]
		if !b.Binds() {
			continue
		}
		if b.ReplacedBy = s.replacing(b.Rule.Name, checks, bounds); b.ReplacedBy != "" {
			b.Checks, b.Bounds = nil, nil
		}
	}
	return all
}

// Binds reports whether the rule binds the request, by limits or by a bound on what is in
// progress.
func (b *Binding) Binds() bool { return len(b.Checks)+len(b.Bounds) > 0 }

// inspect is Inspect for one rule, and for a descriptor that has the table's entries.
// It does not know whether another rule replaces this one.
func (s *Set) inspect(i int32, d Descriptor, cost int64, u *models.Usage) Binding {
	r, c := &s.rules[i], &s.compiled[i]
	b := Binding{Rule: r}
	if r.Direct {
		return b
	}
	// The conditions in c lack the one that the index answers.
	demands := s.demands()[i]
	for j := range demands {
		if !demands[j].holds(d) {
			b.Unmet = &demands[j].Condition
			return b
		}
	}
	for _, p := range r.Per {
		if _, ok := d.Get(p.Entry); !ok {
			b.Lacks = p.Entry
			return b
		}
	}
	var out Outcome
	if b.Err = s.apply(i, d, cost, u, &out); b.Err != nil {
		return b
	}
	b.Checks, b.Bounds = out.Checks, out.Bounds
	if !b.Binds() {
		b.NoTier = s.limits(c, d) == nil && (r.InProgress == nil || s.permits(c, d) == 0)
		b.Free = !b.NoTier
		return b
	}
	if c.more == nil {
		return b
	}
	if j, found := c.more.overrides.find(d, s.now); found {
		b.Override = j + 1
	} else if r.Tariff != nil {
		b.Tier = s.tier(c, d)
	}
	return b
}

// Known returns the entries that the table of subjects has for the client that sent the request.
// They are shared and must not be changed. They replace entries of the request that have the same
// names.
func (s *Set) Known(d Descriptor) Descriptor {
	if s.subjects == nil {
		return nil
	}
	entries, _ := s.subjects.row(d, nil)
	return entries
}
