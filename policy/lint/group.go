package lint

import "slices"

// groups holds many lists of conditions, each under a number, so that a list is compared
// with those few that it may have to do with. Each list is in one group: that of an entry
// of which it demands values or presence, or that of all lists which demand neither.
type groups struct {
	entries map[string]*group
	rest    []int
	found   []int // what the last call returned
}

// group has the lists that demand something of one entry.
type group struct {
	// whole has the lists that demand one of some whole values, by each of these. others
	// has the other lists, and all has both.
	whole       map[string][]int
	others, all []int
}

// newGroups groups the lists under their places.
func newGroups(lists [][]condition) *groups {
	g := &groups{}
	for i, list := range lists {
		g.add(i, list)
	}
	return g
}

// whole reports whether the condition demands one of some whole values.
func (c *condition) whole() bool { return !c.Not && c.values.kinds == wholeKind }

// add puts a list into its group: that of a condition with whole values, since such a group
// offers the fewest lists, else that of one with other values, else that of one which
// demands presence.
func (g *groups) add(i int, list []condition) {
	at := slices.IndexFunc(list, func(c condition) bool { return c.whole() })
	if at < 0 {
		at = slices.IndexFunc(list, func(c condition) bool { return !c.Not && !c.bare() })
	}
	if at < 0 {
		at = slices.IndexFunc(list, func(c condition) bool { return !c.Not })
	}
	if at < 0 {
		g.rest = append(g.rest, i)
		return
	}
	c := &list[at]
	if g.entries == nil {
		g.entries = make(map[string]*group)
	}
	to := g.entries[c.Entry]
	if to == nil {
		to = &group{whole: make(map[string][]int)}
		g.entries[c.Entry] = to
	}
	to.all = append(to.all, i)
	if !c.whole() {
		to.others = append(to.others, i)
		return
	}
	for _, p := range c.values.list {
		to.whole[p.text] = append(to.whole[p.text], i)
	}
}

// implied returns the lists that may follow from the given conditions, in ascending order.
// The slice is valid until the next call.
func (g *groups) implied(given []condition) []int {
	g.found = append(g.found[:0], g.rest...)
	for i := range given {
		c := &given[i]
		in := g.entries[c.Entry]
		if c.Not || in == nil {
			continue
		}
		g.found = append(g.found, in.others...)
		if !c.bare() && c.values.list[0].kind == wholeKind {
			// What follows from each of the values follows from the first one.
			g.found = append(g.found, in.whole[c.values.list[0].text]...)
		}
	}
	return g.sorted()
}

// meeting returns the lists of which a request that meets the conditions may meet one as
// well, in ascending order. The slice is valid until the next call.
func (g *groups) meeting(match []condition) []int {
	g.found = append(g.found[:0], g.rest...)
	for entry, in := range g.entries {
		at := slices.IndexFunc(match, func(c condition) bool { return c.Entry == entry && c.whole() })
		if at < 0 {
			g.found = append(g.found, in.all...)
			continue
		}
		g.found = append(g.found, in.others...)
		for _, p := range match[at].values.list {
			g.found = append(g.found, in.whole[p.text]...)
		}
	}
	return g.sorted()
}

func (g *groups) sorted() []int {
	slices.Sort(g.found)
	g.found = slices.Compact(g.found)
	return g.found
}
