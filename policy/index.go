package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// maxIndexed is how many entries are indexed: each costs a lookup for every
// request.
const maxIndexed = 4

// index finds those of many lists of demands that a request may meet, without
// looking at the others: one list for each rule, for instance. A list that
// demands one of some values, beginnings, networks or hashes for an indexed entry
// is filed under those; all others are in rest, and are looked at for every
// request. What is filed is in the order of the lists, and a list is filed under
// one entry only.
type index struct {
	entries []indexedEntry
	rest    []int32
}

type indexedEntry struct {
	name     string
	address  bool
	values   map[string][]int32
	hashes   map[string][]int32
	hasher   *hasher // if there are hashes
	prefixes *nest[string]
	networks *nest[netip.Prefix]
}

// newIndex files the lists under the entries that most of them demand something
// of, and takes the demand that the index answers out of its list. A nil list is
// never found.
func newIndex(lists []*[]demand) index {
	uses, shared := make(map[string]int), make(map[filed]int)
	for _, list := range lists {
		if list == nil {
			continue
		}
		for j := range *list {
			if c := &(*list)[j]; c.indexable() {
				uses[c.Entry]++
				for _, p := range c.patterns() {
					shared[filed{c.Entry, p}]++
				}
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(uses), func(a, b string) int {
		return cmp.Or(cmp.Compare(uses[b], uses[a]), cmp.Compare(a, b))
	})
	names = names[:min(maxIndexed, len(names))]
	files := newFiles(names, shared)
	var x index
	for i, list := range lists {
		if list == nil {
			continue
		}
		j := files.choose(*list, shared)
		if j < 0 {
			x.rest = append(x.rest, int32(i))
			continue
		}
		files.add(&(*list)[j], int32(i))
		*list = slices.Delete(*list, j, j+1)
	}
	x.entries = files.entries()
	return x
}

// indexable reports whether the index can answer the demand. Beginnings and hashes
// of addresses depend on how they are spelled, and are left to the demand.
func (c *demand) indexable() bool {
	return !c.Not && c.Size() > 0 && (!c.address || len(c.Prefixes)+len(c.Hashes) == 0)
}

// candidates walks through some lists of places as if they were one.
type candidates struct {
	lists [maxIndexed*maxFound + 1][]int32
	n     int
	last  int32 // that was found; -1 at first
}

// maxFound is how many lists one entry of a request can be filed under: its value,
// its hashes under three keys, and what it is nested in.
const maxFound = 1 + 3 + 2*maxNested

func (c *candidates) add(list []int32) {
	if len(list) > 0 {
		c.lists[c.n] = list
		c.n++
	}
}

// candidates fills in c, which is empty.
func (x *index) candidates(d Descriptor, c *candidates) {
	c.last = -1
	c.add(x.rest)
	for i := range x.entries {
		e := &x.entries[i]
		value, ok := d.Get(e.name)
		if !ok {
			continue
		}
		if e.networks != nil {
			if a, err := netip.ParseAddr(value); err == nil {
				e.networks.find(netip.PrefixFrom(a.Unmap().WithZone(""), a.Unmap().BitLen()), c)
			}
		}
		if e.prefixes != nil {
			e.prefixes.find(value, c)
		}
		for h := e.hasher; h != nil; h = h.next {
			var space [32]byte
			c.add(e.hashes[string(h.append(space[:0], e.name, value))])
		}
		if len(e.values) > 0 {
			if e.address {
				value = spelled(value)
			}
			c.add(e.values[value])
		}
	}
}

// next returns the next place, in ascending order, each once.
func (c *candidates) next() (place int32, ok bool) {
	for {
		least := -1
		for i := range c.n {
			if len(c.lists[i]) > 0 && (least < 0 || c.lists[i][0] < place) {
				least, place = i, c.lists[i][0]
			}
		}
		if least < 0 {
			return 0, false
		}
		c.lists[least] = c.lists[least][1:]
		if place != c.last {
			c.last = place
			return place, true
		}
	}
}
