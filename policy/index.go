package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
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
	entries []*indexedEntry
	rest    []int32
}

// indexedEntry has what is filed under one entry.
type indexedEntry struct {
	name                     string
	address                  bool
	values, hashes, prefixes map[string][]int32
	networks                 map[netip.Prefix][]int32
	hasher                   *hasher // if there are hashes
	// What a value begins with is found among the keys of prefixes and networks.
	beginnings *nest[string]
	within     *nest[netip.Prefix]
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
	files := make([]*indexedEntry, len(names)) // those of names, nil while nothing is filed there
	var x index
	for i, list := range lists {
		if list == nil {
			continue
		}
		j := choose(*list, names, shared)
		if j < 0 {
			x.rest = append(x.rest, int32(i))
			continue
		}
		c := &(*list)[j]
		at := slices.Index(names, c.Entry)
		if files[at] == nil {
			files[at] = newIndexedEntry(c)
		}
		files[at].add(c, int32(i))
		*list = slices.Delete(*list, j, j+1)
	}
	for _, e := range files {
		if e != nil {
			e.beginnings = nestOf(e.prefixes, strings.Compare, strings.HasPrefix)
			e.within = nestOf(e.networks, compareNetworks, lies)
			x.entries = append(x.entries, e)
		}
	}
	return x
}

// filed is what a list may be filed under.
type filed struct {
	entry string
	pattern
}

// indexable reports whether the index can answer the demand. Beginnings and hashes
// of addresses depend on how they are spelled, and are left to the demand.
func (c *demand) indexable() bool {
	return !c.Not && c.Size() > 0 && (!c.address || len(c.Prefixes)+len(c.Hashes) == 0)
}

// choose returns which demand on one of the named entries to file a list under: the
// one that shares what it asks for with the fewest others, so that few are found in
// vain. It is -1 if there is none.
func choose(list []demand, names []string, shared map[filed]int) int {
	best, least := -1, [3]int{}
	for j := range list {
		c := &list[j]
		if !c.indexable() || !slices.Contains(names, c.Entry) {
			continue
		}
		// To hash a value costs more than to look for it, and that more than one
		// look at a table.
		cost := [3]int{0, 2*len(c.Hashes) + min(1, len(c.Prefixes)+len(c.Networks)), c.Size()}
		for _, p := range c.patterns() {
			cost[0] += shared[filed{c.Entry, p}] - 1
		}
		if best < 0 || slices.Compare(cost[:], least[:]) < 0 {
			best, least = j, cost
		}
	}
	return best
}

func newIndexedEntry(c *demand) *indexedEntry {
	return &indexedEntry{
		name: c.Entry, address: c.address,
		values: make(map[string][]int32), hashes: make(map[string][]int32),
		prefixes: make(map[string][]int32), networks: make(map[netip.Prefix][]int32),
	}
}

// add files a list under all that its demand asks for.
func (e *indexedEntry) add(c *demand, place int32) {
	for _, p := range c.patterns() {
		switch {
		case p.network.IsValid():
			put(e.networks, p.network, place)
		case p.hash:
			put(e.hashes, p.text, place)
			e.hasher = c.hasher
		case p.prefix:
			put(e.prefixes, p.text, place)
		default:
			put(e.values, p.text, place)
		}
	}
}

// put adds a place to a list that it may be the last of already.
func put[K comparable](lists map[K][]int32, key K, place int32) {
	if list := lists[key]; len(list) == 0 || list[len(list)-1] != place {
		lists[key] = append(list, place)
	}
}

// room is how many places a caller of find has room for on its stack.
const room = 128

// find returns the places of all lists that the request may meet, in ascending
// order, each once. It appends them to dst, which is empty, and allocates only if
// they do not fit there.
func (x *index) find(d Descriptor, dst []int32) []int32 {
	dst = append(dst, x.rest...)
	for _, e := range x.entries {
		value, ok := d.Get(e.name)
		if !ok {
			continue
		}
		if e.within != nil {
			if a, err := netip.ParseAddr(value); err == nil {
				dst = e.within.find(single(a), dst)
			}
		}
		if e.beginnings != nil {
			dst = e.beginnings.find(value, dst)
		}
		for h := e.hasher; h != nil; h = h.next {
			var space [32]byte
			dst = append(dst, e.hashes[string(h.append(space[:0], e.name, value))]...)
		}
		if len(e.values) > 0 {
			if e.address {
				value = spelled(value)
			}
			dst = append(dst, e.values[value]...)
		}
	}
	slices.Sort(dst)
	return slices.Compact(dst)
}

// nest finds those of many beginnings that something begins with, in the time of
// a search among them: the greatest one that does not exceed it is one of them, or
// begins with all of them. Networks are the beginnings of addresses.
type nest[T any] struct {
	keys    []T       // in order
	lists   [][]int32 // what is filed under the keys, in an index
	parents []int32   // the longest of the others that a key begins with; -1 for none
	compare func(a, b T) int
	begins  func(whole, beginning T) bool
}

// newNest returns nil if there are no keys, and takes over their slice.
func newNest[T any](keys []T, compare func(a, b T) int, begins func(whole, beginning T) bool) *nest[T] {
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, compare)
	n := &nest[T]{keys: keys, compare: compare, begins: begins}
	for i, key := range n.keys {
		parent := int32(i - 1)
		for parent >= 0 && !begins(key, n.keys[parent]) {
			parent = n.parents[parent]
		}
		n.parents = append(n.parents, parent)
	}
	return n
}

// nestOf is a nest of the keys of lists, with the lists.
func nestOf[T comparable](lists map[T][]int32, compare func(a, b T) int, begins func(whole, beginning T) bool) *nest[T] {
	n := newNest(slices.Collect(maps.Keys(lists)), compare, begins)
	if n != nil {
		for _, key := range n.keys {
			n.lists = append(n.lists, lists[key])
		}
	}
	return n
}

// find appends the lists of all keys that the value begins with.
func (n *nest[T]) find(value T, dst []int32) []int32 {
	for at := n.longest(value); at >= 0; at = n.parents[at] {
		dst = append(dst, n.lists[at]...)
	}
	return dst
}

// longest is the place of the longest key that the value begins with; -1 for none.
func (n *nest[T]) longest(value T) int32 {
	i, found := slices.BinarySearchFunc(n.keys, value, n.compare)
	if !found {
		i--
	}
	at := int32(i)
	for at >= 0 && !n.begins(value, n.keys[at]) {
		at = n.parents[at]
	}
	return at
}

// single is the network of one address, without a zone.
func single(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen())
}

// compareNetworks orders a network before those within it.
func compareNetworks(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// lies reports whether one network lies in another.
func lies(inner, outer netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}
