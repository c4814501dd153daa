package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// overlaps warns of rules that are in each other's way, or in that of a list.
func (l *linter) overlaps() {
	s := l.set
	alike := make(map[string][]int)
	var bound []*bounds
	for i := range s.rules {
		r := &s.rules[i]
		if r.Direct || contradiction(r, s.secret) != "" {
			continue
		}
		b := &bounds{rule: r, place: i, conditions: r.demanded()}
		if l.unreachable(b) {
			continue
		}
		if r.plain() {
			bound = append(bound, b)
		}
	}
	likely := newCoverers(len(bound), func(i int) []Condition { return bound[i].rule.Match })
	for _, b := range bound {
		var others []*bounds
		for _, i := range likely.of(b.conditions) {
			others = append(others, bound[i])
		}
		if l.shadowed(b, others) {
			continue
		}
		shape := b.rule.shape()
		for _, i := range alike[shape] {
			other := &s.rules[i]
			if apart(other.Match, b.rule.Match) || slices.Contains(other.Replaces, b.rule.Name) || slices.Contains(b.rule.Replaces, other.Name) {
				continue
			}
			both := Rule{Match: slices.Concat(other.Match, b.rule.Match), Per: b.rule.Per}
			if contradiction(&both, s.secret) != "" {
				continue
			}
			l.about(b.rule.Name, b.rule.Pos)(CodeTwice, "it has the key and the limits of rule %q, and a request that both match is counted by each under a counter of its own; make one rule of them, or let their match exclude each other", other.Name)
			break
		}
		alike[shape] = append(alike[shape], b.place)
	}
}

// apart reports whether two rules clearly demand different values of an entry:
// what most pairs of rules do.
func apart(a, b []Condition) bool {
	for i := range a {
		for j := range b {
			if p, q := &a[i], &b[j]; p.Entry == q.Entry && p.exact() && q.exact() &&
				!slices.ContainsFunc(p.Equals, func(v string) bool { return slices.Contains(q.Equals, v) }) {
				return true
			}
		}
	}
	return false
}

// coverers finds those of many rules whose conditions may follow from others,
// without comparing each with each.
type coverers struct {
	// by has the rules that demand one of some values, under each of them; rest
	// has all others.
	by   map[Entry][]int32
	rest []int32
}

func newCoverers(n int, conditions func(i int) []Condition) *coverers {
	c := &coverers{by: make(map[Entry][]int32)}
	for i := range n {
		all := conditions(i)
		exact := slices.IndexFunc(all, func(one Condition) bool { return one.exact() })
		if exact < 0 {
			c.rest = append(c.rest, int32(i))
			continue
		}
		for _, v := range all[exact].Equals {
			at := Entry{all[exact].Entry, v}
			c.by[at] = append(c.by[at], int32(i))
		}
	}
	return c
}

// of returns, in their order, the rules that may cover requests which meet the
// conditions. What follows from a list of values holds for the first of them.
func (c *coverers) of(conditions []Condition) []int32 {
	all := slices.Clone(c.rest)
	for i := range conditions {
		if one := &conditions[i]; one.exact() {
			all = append(all, c.by[Entry{one.Entry, one.Equals[0]}]...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// bounds is a rule and what its requests are known to have.
type bounds struct {
	rule       *Rule
	place      int
	conditions []Condition
}

// demanded has the rule's conditions, and the presence of what it counts by.
func (r *Rule) demanded() []Condition {
	all := slices.Clone(r.Match)
	for _, p := range r.Per {
		all = append(all, Present(p.Entry))
	}
	return all
}

// plain reports whether the rule's limits are the same for all its requests.
func (r *Rule) plain() bool {
	return r.Tariff == nil && r.Costs == nil && len(r.Overrides) == 0 && r.Enforced() == 100
}

// shape writes what the rule counts by and its limits.
func (r *Rule) shape() string {
	var b strings.Builder
	for _, p := range r.Per {
		fmt.Fprintf(&b, "%s/%d/%d ", p.Entry, p.Bits4, p.Bits6)
	}
	fmt.Fprintf(&b, "cost %d ", r.factor())
	limits := r.Limits.Limits()
	for i := range limits {
		fmt.Fprintf(&b, "%v %v, ", limits[i].Algorithm, &limits[i])
	}
	return b.String()
}

// unreachable warns of a rule whose requests a list answers.
func (l *linter) unreachable(b *bounds) bool {
	for _, list := range []struct {
		name    string
		entries []ListEntry
	}{{"deny", l.set.options.deny}, {"allow", l.set.options.allow}} {
		for i := range list.entries {
			e := &list.entries[i]
			if e.Until.IsZero() && implied(b.conditions, e.Match) {
				l.about(b.rule.Name, b.rule.Pos)(CodeUnreachable, "it is never reached: the entry %q of the %s list answers every request that it matches", e.Name, list.name)
				return true
			}
		}
	}
	return false
}

// implied reports whether what is given makes all that is wanted hold.
func implied(given, want []Condition) bool {
	for i := range want {
		if !slices.ContainsFunc(given, func(g Condition) bool { return implies(&g, &want[i]) }) {
			return false
		}
	}
	return true
}

// shadowed warns of limits that another rule makes useless: one that counts the
// same requests, and maybe more, under the same counter or a wider one.
func (l *linter) shadowed(b *bounds, all []*bounds) bool {
	limits := withoutPenalties(b.rule.Limits.Limits())
	told := make([]bool, len(limits))
	found := false
	for _, a := range all {
		if a == b || l.set.compiled[a.place].replacedBy != nil { // Where it is replaced it denies nothing.
			continue
		}
		if a.rule.factor() != b.rule.factor() || !wider(a.rule.Per, b.rule.Per) || !implied(b.conditions, a.rule.Match) {
			continue
		}
		// Of two rules that count the same, the later one is named.
		same := a.place > b.place && wider(b.rule.Per, a.rule.Per) && implied(a.conditions, b.rule.Match)
		for i := range limits {
			if told[i] {
				continue
			}
			by, why := makesUseless(a.rule.Limits, &limits[i])
			if why == "" || same && useless(&limits[i], by) != "" {
				continue
			}
			told[i], found = true, true
			l.about(b.rule.Name, b.rule.Pos)(CodeShadowed, "limit %q can never bind, because rule %q counts all its requests as well: %s", &limits[i], a.rule.Name, why)
		}
	}
	return found
}

// makesUseless returns which of the rule's limits makes the other one useless,
// and why; "" if none does.
func makesUseless(r *headgate.Rule, other *headgate.Limit) (*headgate.Limit, string) {
	limits := withoutPenalties(r.Limits())
	for i := range limits {
		if why := useless(&limits[i], other); why != "" {
			return &limits[i], why
		}
	}
	return nil, ""
}

// wider reports whether requests that one key of b counts are all counted by one
// key of a.
func wider(a, b []Part) bool {
	return !slices.ContainsFunc(a, func(p Part) bool {
		return !slices.ContainsFunc(b, func(q Part) bool {
			return p.Entry == q.Entry && shorter(p.Bits4, q.Bits4) && shorter(p.Bits6, q.Bits6)
		})
	})
}

// shorter reports whether a prefix length is not above another; zero is a whole
// address.
func shorter(a, b int) bool { return a == b || a != 0 && (b == 0 || a < b) }
