package policy

import (
	"fmt"
	"slices"
)

// contradicts is contradiction for the values of one entry, and its absence.
func contradicts(match []clause, per []Part, entry string, secret bool) string {
	var required, absent bool
	var lists, excluded []*clause
	counted := slices.ContainsFunc(per, func(p Part) bool { return p.Entry == entry })
	for i := range match {
		c := &match[i]
		switch {
		case c.Entry != entry:
		case c.Not && c.bare():
			absent = true
		case c.Not:
			excluded = append(excluded, c)
		default:
			required = true
			if !c.bare() {
				lists = append(lists, c)
			}
		}
	}
	switch {
	case absent && required:
		return fmt.Sprintf("entry %q must be both absent and present; drop one of the conditions", entry)
	case absent && counted:
		return fmt.Sprintf("entry %q must be absent, but the rule counts by it; take it out of per, or drop the condition", entry)
	case len(lists) == 0:
		return ""
	}
	left := lists[0].values // What the conditions leave of the first list.
	for _, c := range lists[1:] {
		left = left.and(c.values)
	}
	if len(left.list) == 0 {
		return fmt.Sprintf("entry %q must have a value out of %d lists that have none in common; join them into one", entry, len(lists))
	}
	for _, p := range left.list {
		if !slices.ContainsFunc(excluded, func(c *clause) bool { return c.values.covers(p) }) {
			return ""
		}
	}
	return fmt.Sprintf("entry %q must have one of the values %s, and not has each of them; take them out of not", entry, lists[0].some(secret))
}

// uncaught warns of requests that pass by the rule because they lack an
// entry, if they pass by all other rules too. Other entries that a rule counts
// by are taken to be there: it is warned of on its own.
func (l *linter) uncaught(place int32, warn warnFunc) {
	r, match := &l.set.rules[place], l.match[place]
	for _, p := range r.Per {
		if requires(r, p.Entry) {
			continue
		}
		absent := Absent(p.Entry)
		lacking := append(slices.Clip(match), newClause(&absent))
		caught := l.catchers.each(lacking, func(i int32) bool {
			c := &l.set.rules[i]
			switch {
			case i == place:
				return false
			case c.Direct, c.Tariff != nil && c.Tariff.Other == nil, slices.ContainsFunc(c.Per, func(q Part) bool { return q.Entry == p.Entry }):
				return l.enough(int(place), 1)
			}
			return l.enough(int(place), effort(lacking, l.match[i])) || implied(lacking, l.match[i])
		})
		if !caught {
			warn(CodeUncaught, "it does not bind requests without %q, and no other rule does; add one for them, with match: { %s: absent }, or require the entry here, with match: { %s: present }, if they are to pass freely",
				p.Entry, p.Entry, p.Entry)
		}
	}
}

// requires reports whether the rule's conditions demand that the entry be there.
func requires(r *Rule, entry string) bool {
	return slices.ContainsFunc(r.Match, func(c Condition) bool { return c.Entry == entry && !c.Not })
}
