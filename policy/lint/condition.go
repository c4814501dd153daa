package lint

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/policy"
)

// condition is a condition of a rule or of an entry of a list, with its values prepared for
// comparisons.
type condition struct {
	*policy.Condition
	values *values
}

func newConditions(list []policy.Condition) []condition {
	all := make([]condition, len(list))
	for i := range list {
		all[i] = condition{&list[i], newValues(&list[i])}
	}
	return all
}

// present and absent return the conditions that an entry is present or absent.
func present(entry string) condition {
	return condition{&policy.Condition{Entry: entry}, new(values)}
}

func absent(entry string) condition {
	return condition{&policy.Condition{Entry: entry, Not: true}, new(values)}
}

// bare reports whether the condition demands only presence or absence.
func (c *condition) bare() bool { return len(c.values.list) == 0 }

// implies reports whether every request that meets condition c is known to meet want. It looks only
// at these two, and so misses what follows from several conditions together.
func (c *condition) implies(want *condition) bool {
	switch {
	case c.Entry != want.Entry:
		return false
	case c.Not && want.Not: // c excludes all that want excludes.
		return c.bare() || !want.bare() && c.values.coverAll(want.values)
	case c.Not:
		return false
	case want.Not: // want excludes no value that meets c.
		return !c.bare() && !want.bare() && !c.values.meet(want.values)
	}
	return want.bare() || !c.bare() && want.values.coverAll(c.values)
}

// implied reports whether every request that meets all of the given conditions is known to
// meet all of the wanted ones.
func implied(given, want []condition) bool {
	for i := range want {
		if !slices.ContainsFunc(given, func(c condition) bool { return c.implies(&want[i]) }) {
			return false
		}
	}
	return true
}

// apart reports whether two of the conditions demand values of the same entry and have no value in
// common. For most pairs of rules this is enough to show that no request meets both.
func apart(a, b []condition) bool {
	for i := range a {
		for j := range b {
			p, q := &a[i], &b[j]
			if p.Entry == q.Entry && !p.Not && !q.Not && !p.bare() && !q.bare() && !p.values.meet(q.values) {
				return true
			}
		}
	}
	return false
}

// contradiction says why no request can meet all conditions and have the entries by which the rule
// counts. It returns "" if it finds no reason.
func contradiction(match []condition, per []policy.Part, secret func(entry string) bool) string {
	for i := range match {
		entry := match[i].Entry
		if slices.ContainsFunc(match[:i], func(c condition) bool { return c.Entry == entry }) {
			continue // The entry was looked at already.
		}
		if why := contradictionOf(entry, match[i:], per, secret(entry)); why != "" {
			return why
		}
	}
	return ""
}

// contradictionOf is contradiction for the conditions on one entry.
func contradictionOf(entry string, match []condition, per []policy.Part, secret bool) string {
	var required, absent bool
	var demanded, excluded []*condition
	for i := range match {
		c := &match[i]
		switch {
		case c.Entry != entry:
		case c.Not && c.bare():
			absent = true
		case c.Not:
			excluded = append(excluded, c)
		case c.bare():
			required = true
		default:
			required = true
			demanded = append(demanded, c)
		}
	}
	counted := slices.ContainsFunc(per, func(p policy.Part) bool { return p.Entry == entry })
	switch {
	case absent && required:
		return fmt.Sprintf("entry %q must be both absent and present; drop one of the conditions", entry)
	case absent && counted:
		return fmt.Sprintf("entry %q must be absent, but the rule counts by it; take it out of per, or drop the condition", entry)
	case len(demanded) == 0:
		return ""
	}
	left := common(demanded)
	if len(left) == 0 {
		return fmt.Sprintf("entry %q must have a value out of %d lists that have none in common; join them into one", entry, len(demanded))
	}
	for _, p := range left {
		if !slices.ContainsFunc(excluded, func(c *condition) bool { return c.values.cover(p) }) {
			return ""
		}
	}
	return fmt.Sprintf("entry %q must have one of the values %s, and not has each of them; take them out of not", entry, demanded[0].Describe(secret))
}

// common returns the patterns that the values which meet all of the conditions may meet. Two
// patterns either have no value in common, or one includes the other. So the patterns shared by all
// conditions are among the conditions' own patterns.
func common(demanded []*condition) []pattern {
	if len(demanded) == 1 {
		return demanded[0].values.list
	}
	var left []pattern
	for i, c := range demanded {
		for _, p := range c.values.list {
			shared := true
			for j, other := range demanded {
				shared = shared && (i == j || other.values.mayHave(p))
			}
			if shared {
				left = append(left, p)
			}
		}
	}
	return left
}
