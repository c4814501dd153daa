package lint

import "slices"

// groups holds many lists of conditions, each with a number. It finds the few lists with which a
// given list must be compared. Each list is in the group of one entry of which it demands values or
// presence. Lists that demand neither of any entry are in rest.
type groups struct {
	entries map[string]*group
	rest    []int
	found   []int // the result of the last call
}

// group has the lists that are grouped by one entry. Each slice of lists is in ascending order.
type group struct {
	// demand has, for each pattern, the lists whose condition has that pattern. lengths and bits
	// are the lengths of the prefixes and of the networks among these patterns, each once.
	demand        map[pattern][]int
	lengths, bits []int
	// present has the lists that demand only presence.
	present []int
	// mixed has all lists except those that demand one of some whole values. all has all lists of
	// the group.
	mixed, all []int
}

// newGroups groups the lists. The number of a list is its index.
func newGroups(lists [][]condition) *groups {
	g := &groups{}
	for i, list := range lists {
		g.add(i, list)
	}
	return g
}

// whole reports whether the condition demands one of some whole values.
func (c *condition) whole() bool { return !c.Not && c.values.kinds == wholeKind }

// add adds a list to the group of one of its conditions: one with whole values if there is one,
// because the fewest lists have to be compared with it, else one with other values, else one that
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
	in := g.entries[c.Entry]
	if in == nil {
		in = &group{demand: make(map[pattern][]int)}
		g.entries[c.Entry] = in
	}
	in.all = append(in.all, i)
	if !c.whole() {
		in.mixed = append(in.mixed, i)
	}
	if c.bare() {
		in.present = append(in.present, i)
	}
	for _, p := range c.values.list {
		in.demand[p] = append(in.demand[p], i)
	}
	in.lengths, in.bits = with(in.lengths, c.values.lengths), with(in.bits, c.values.bits)
}

// with adds the numbers of more that are missing in list.
func with(list, more []int) []int {
	for _, n := range more {
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// implied returns the lists that may follow from the given conditions, in ascending order. The
// slice is valid until the next call of a method.
func (g *groups) implied(given []condition) []int {
	g.found = append(g.found[:0], g.rest...)
	for i := range given {
		c := &given[i]
		in := g.entries[c.Entry]
		if c.Not || in == nil {
			continue
		}
		g.found = append(g.found, in.present...)
		if c.bare() {
			continue
		}
		// A list that follows from the condition follows from each of its values, so the lists for
		// the first value are enough.
		for p := range covering(c.values.list[0], in.lengths, in.bits) {
			g.found = append(g.found, in.demand[p]...)
		}
	}
	return g.sorted()
}

// meeting returns the lists that a request which meets the conditions may meet as well, in
// ascending order. The slice is valid until the next call of a method.
func (g *groups) meeting(match []condition) []int {
	g.found = append(g.found[:0], g.rest...)
	for entry, in := range g.entries {
		at := slices.IndexFunc(match, func(c condition) bool { return c.Entry == entry && c.whole() })
		if at < 0 {
			g.found = append(g.found, in.all...)
			continue
		}
		g.found = append(g.found, in.mixed...)
		for _, p := range match[at].values.list {
			g.found = append(g.found, in.demand[p]...)
		}
	}
	return g.sorted()
}

func (g *groups) sorted() []int {
	slices.Sort(g.found)
	g.found = slices.Compact(g.found)
	return g.found
}
