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
	var bound []*bounds
	deny, allow := newAnswers(s.options.deny), newAnswers(s.options.allow)
	for i := range s.rules {
		r := &s.rules[i]
		if r.Direct || contradiction(l.match[i], r.Per, s.secret) != "" {
			continue
		}
		b := &bounds{rule: r, place: i, match: l.match[i], conditions: l.match[i]}
		for _, p := range r.Per {
			present := Present(p.Entry)
			b.conditions = append(slices.Clip(b.conditions), newClause(&present))
		}
		if l.unreachable(b, "deny", deny) || l.unreachable(b, "allow", allow) {
			continue
		}
		if r.plain() {
			bound = append(bound, b)
		}
	}
	match := make([][]clause, len(bound))
	for i, b := range bound {
		match[i] = b.match
	}
	likely := newCoverers(match)
	alike := make(map[string][]*bounds)
	for _, b := range bound {
		if l.shadowed(b, bound, likely) {
			continue
		}
		shape := b.rule.shape()
		for _, other := range alike[shape] {
			if !mayMeet(other.match, b.match) || slices.Contains(other.rule.Replaces, b.rule.Name) || slices.Contains(b.rule.Replaces, other.rule.Name) ||
				contradiction(slices.Concat(other.match, b.match), b.rule.Per, s.secret) != "" {
				continue
			}
			l.about(b.rule.Name, b.rule.Pos)(CodeTwice, "it has the key and the limits of rule %q, and a request that both match is counted by each under a counter of its own; make one rule of them, or let their match exclude each other", other.rule.Name)
			break
		}
		alike[shape] = append(alike[shape], b)
	}
}

// bounds is a rule, its conditions and what its requests are known to have: that,
// and the entries that it counts by.
type bounds struct {
	rule              *Rule
	place             int
	match, conditions []clause
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

// answers are the entries of a list that answer for good.
type answers struct {
	entries []*ListEntry
	match   [][]clause
	likely  *coverers
}

func newAnswers(list []ListEntry) *answers {
	a := new(answers)
	for i := range list {
		if e := &list[i]; e.Until.IsZero() {
			a.entries, a.match = append(a.entries, e), append(a.match, newClauses(e.Match))
		}
	}
	a.likely = newCoverers(a.match)
	return a
}

// unreachable warns of a rule whose requests a list answers.
func (l *linter) unreachable(b *bounds, name string, list *answers) bool {
	return list.likely.each(b.conditions, func(i int32) bool {
		if !implied(b.conditions, list.match[i]) {
			return false
		}
		l.about(b.rule.Name, b.rule.Pos)(CodeUnreachable, "it is never reached: the entry %q of the %s list answers every request that it matches", list.entries[i].Name, name)
		return true
	})
}

// shadowed warns of limits that another rule makes useless: one that counts the
// same requests, and maybe more, under the same counter or a wider one.
func (l *linter) shadowed(b *bounds, bound []*bounds, likely *coverers) bool {
	limits := withoutPenalties(b.rule.Limits.Limits())
	told := make([]bool, len(limits))
	found := 0
	likely.each(b.conditions, func(at int32) bool {
		a := bound[at]
		if a == b || l.set.compiled[a.place].replacedBy != nil { // Where it is replaced it denies nothing.
			return false
		}
		if a.rule.factor() != b.rule.factor() || !wider(a.rule.Per, b.rule.Per) || !implied(b.conditions, a.match) {
			return false
		}
		// Of two rules that count the same, the later one is named.
		same := a.place > b.place && wider(b.rule.Per, a.rule.Per) && implied(a.conditions, b.match)
		for i := range limits {
			if told[i] {
				continue
			}
			by, why := makesUseless(a.rule.Limits, &limits[i])
			if why == "" || same && useless(&limits[i], by) != "" {
				continue
			}
			told[i] = true
			found++
			l.about(b.rule.Name, b.rule.Pos)(CodeShadowed, "limit %q can never bind, because rule %q counts all its requests as well: %s", &limits[i], a.rule.Name, why)
		}
		return found == len(limits)
	})
	return found > 0
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
