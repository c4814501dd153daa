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
	alike := make(map[string]*alikes)
	for _, b := range bound {
		if l.shadowed(b, bound, likely) {
			continue
		}
		shape := b.rule.shape()
		if alike[shape] == nil {
			alike[shape] = newAlikes()
		}
		l.twice(b, alike[shape])
		alike[shape].add(b)
	}
}

// twice warns of a rule that counts what one of those counts which are alike.
func (l *linter) twice(b *bounds, alike *alikes) {
	if l.steps > maxSteps && len(alike.all) > 0 {
		l.unseen[b.place] = true
		return
	}
	others := alike.near(b.match)
	l.steps += len(others)
	slices.Sort(others)
	for _, i := range slices.Compact(others) {
		other := alike.all[i]
		if l.enough(b.place, effort(other.match, b.match)) {
			return
		}
		if !mayMeet(other.match, b.match) || slices.Contains(other.rule.Replaces, b.rule.Name) || slices.Contains(b.rule.Replaces, other.rule.Name) ||
			contradiction(slices.Concat(other.match, b.match), b.rule.Per, l.set.secret) != "" {
			continue
		}
		l.about(b.rule.Name, b.rule.Pos)(CodeTwice, "it has the key and the limits of rule %q, and a request that both match is counted by each under a counter of its own; make one rule of them, or let their match exclude each other", other.rule.Name)
		return
	}
}

// bounds is a rule, its conditions and what its requests are known to have: that,
// and the entries that it counts by.
type bounds struct {
	rule              *Rule
	place             int
	match, conditions []clause
}

// alikes are rules with one key and the same limits, which are found by the values that
// they demand: thousands of rules that differ by their route alone are no rarity.
type alikes struct {
	all     []*bounds
	entries map[string]*alikeFile
	rest    []int32 // demand no whole values
}

// alikeFile has the rules that are filed under whole values of one entry.
type alikeFile struct {
	texts map[string][]int32
	all   []int32
}

func newAlikes() *alikes { return &alikes{entries: make(map[string]*alikeFile)} }

// wholeOnly reports whether the clause demands one of some whole values.
func (given *clause) wholeOnly() bool { return !given.Not && given.values.kinds == wholeKind }

func (a *alikes) add(b *bounds) {
	i := int32(len(a.all))
	a.all = append(a.all, b)
	at := slices.IndexFunc(b.match, func(c clause) bool { return c.wholeOnly() })
	if at < 0 {
		a.rest = append(a.rest, i)
		return
	}
	c := &b.match[at]
	f := a.entries[c.Entry]
	if f == nil {
		f = &alikeFile{texts: make(map[string][]int32)}
		a.entries[c.Entry] = f
	}
	f.all = append(f.all, i)
	for _, p := range c.values.list {
		put(f.texts, p.text, i)
	}
}

// near returns all rules that a request may match which meets the conditions, and others,
// in any order and some of them several times.
func (a *alikes) near(match []clause) []int32 {
	found := slices.Clone(a.rest)
	for entry, f := range a.entries {
		at := slices.IndexFunc(match, func(c clause) bool { return c.Entry == entry && c.wholeOnly() })
		if at < 0 {
			found = append(found, f.all...)
			continue
		}
		for _, p := range match[at].values.list {
			found = append(found, f.texts[p.text]...)
		}
	}
	return found
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

// unreachable warns of a rule whose requests a list answers, and reports whether it is
// not to be looked at further.
func (l *linter) unreachable(b *bounds, name string, list *answers) bool {
	return list.likely.each(b.conditions, func(i int32) bool {
		if l.enough(b.place, effort(b.conditions, list.match[i])) {
			return true
		}
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
		switch {
		case a == b:
			return false
		case l.set.compiled[a.place].replacedBy != nil, // Where it is replaced it denies nothing.
			a.rule.factor() != b.rule.factor(), !wider(a.rule.Per, b.rule.Per):
			return l.enough(b.place, 1)
		case l.enough(b.place, effort(b.conditions, a.match)):
			return true
		case !implied(b.conditions, a.match):
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
