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

// group has the lists that demand something of one entry, each in ascending order.
type group struct {
	// demand has the lists that demand one of some values, by each of these. lengths and
	// bits are those of the prefixes and networks among the values, each once.
	demand        map[pattern][]int
	lengths, bits []int
	// present has the lists that demand presence only.
	present []int
	// mixed has all lists but those that demand one of some whole values, and all has all.
	mixed, all []int
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

// add puts a list into its group: that of a condition with whole values, since such a
// condition is met by the fewest others, else that of one with other values, else that of
// one which demands presence.
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

// with adds what is missing to a list of different numbers.
func with(list, more []int) []int {
	for _, n := range more {
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
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
		g.found = append(g.found, in.present...)
		if c.bare() {
			continue
		}
		// What follows from each of the values follows from the first one.
		for p := range covering(c.values.list[0], in.lengths, in.bits) {
			g.found = append(g.found, in.demand[p]...)
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
