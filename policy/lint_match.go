package policy

import (
	"fmt"
	"slices"
)

// contradiction says why no request can bind the rule, or "".
func contradiction(r *Rule, secret func(entry string) bool) string {
	var seen []string
	for i := range r.Match {
		entry := r.Match[i].Entry
		if slices.Contains(seen, entry) {
			continue
		}
		seen = append(seen, entry)
		if why := contradicts(r, entry, secret(entry)); why != "" {
			return why
		}
	}
	return ""
}

// contradicts says why no value of one entry, nor its absence, can bind the
// rule, or "".
func contradicts(r *Rule, entry string, secret bool) string {
	var required, absent, counted bool
	var left []pattern // What the conditions leave of the first list of values.
	var lists, excluded []*Condition
	for _, p := range r.Per {
		counted = counted || p.Entry == entry
	}
	for i := range r.Match {
		c := &r.Match[i]
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
	left = lists[0].patterns()
	for _, c := range lists[1:] {
		left = intersect(left, c.patterns())
	}
	if len(left) == 0 {
		return fmt.Sprintf("entry %q must have a value out of %d lists that have none in common; join them into one", entry, len(lists))
	}
	for _, c := range excluded {
		left = slices.DeleteFunc(left, func(p pattern) bool { return covered(p, c.patterns()) })
	}
	if len(left) == 0 {
		return fmt.Sprintf("entry %q must have one of the values %s, and not has each of them; take them out of not", entry, lists[0].some(secret))
	}
	return ""
}

// uncaught warns of requests that pass by the rule because they lack an
// entry, if they pass by all other rules too. Other entries that a rule counts
// by are taken to be there: it is warned of on its own.
func (l *linter) uncaught(r *Rule, warn warnFunc) {
	for _, p := range r.Per {
		if requires(r, p.Entry) {
			continue
		}
		caught := slices.ContainsFunc(l.catchers.of(r.Match), func(i int32) bool {
			c := &l.set.rules[i]
			return c != r && !c.Direct && (c.Tariff == nil || c.Tariff.Other != nil) && catches(c, r, p.Entry)
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

// catches reports whether c matches every request that r matches and that lacks
// the entry.
func catches(c, r *Rule, entry string) bool {
	for _, p := range c.Per {
		if p.Entry == entry {
			return false
		}
	}
	for i := range c.Match {
		want := &c.Match[i]
		if want.Entry == entry {
			if !want.Not {
				return false
			}
			continue
		}
		if !slices.ContainsFunc(r.Match, func(given Condition) bool { return implies(&given, want) }) {
			return false
		}
	}
	return true
}

// implies reports whether the one condition's holding makes the other hold. It
// may miss that for conditions which need several others to follow.
func implies(given, want *Condition) bool {
	if given.Entry != want.Entry {
		return false
	}
	if given.exact() && want.exact() {
		return !slices.ContainsFunc(given.Equals, func(v string) bool { return !slices.Contains(want.Equals, v) })
	}
	g, w := given.patterns(), want.patterns()
	within := func(inner, outer []pattern) bool {
		return !slices.ContainsFunc(inner, func(p pattern) bool { return !covered(p, outer) })
	}
	switch {
	case !given.Not && !want.Not:
		return want.bare() || !given.bare() && within(g, w)
	case !given.Not && want.Not:
		return !given.bare() && !want.bare() && len(intersect(g, w)) == 0
	case given.Not && want.Not:
		return given.bare() || !want.bare() && within(w, g)
	}
	return false
}

// exact reports whether the condition demands one of some whole values, which
// are compared as they are: the usual case, which need not be looked at closely.
func (c *Condition) exact() bool {
	return !c.Not && len(c.Equals) > 0 && len(c.Equals) == c.size() && c.Entry != addressEntry
}
