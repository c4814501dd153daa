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
				e.networks.find(single(a), c)
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

// filed is what a list may be filed under.
type filed struct {
	entry string
	pattern
}

// files is an index that is being made.
type files struct {
	names []string
	each  map[string]*entryFile
}

// entryFile is what is filed under one entry.
type entryFile struct {
	values, hashes, prefixes map[string][]int32
	networks                 map[netip.Prefix][]int32
	hasher                   *hasher
	// deep are the beginnings and networks that are nested too deep to be found.
	deep map[pattern]bool
}

// newFiles returns empty files for the entries of these names. Shared has all that
// lists may be filed under.
func newFiles(names []string, shared map[filed]int) *files {
	f := &files{names: names, each: make(map[string]*entryFile, len(names))}
	for _, name := range names {
		f.each[name] = newEntryFile()
	}
	for at := range shared {
		if e := f.each[at.entry]; e != nil {
			e.put(at.pattern, 0)
		}
	}
	for name, e := range f.each {
		prefixes, networks := beginningsOf(e.prefixes), networksOf(e.networks)
		f.each[name] = newEntryFile()
		for text := range e.prefixes {
			if prefixes.depth(text) > maxNested {
				f.each[name].deep[pattern{text: text, prefix: true}] = true
			}
		}
		for network := range e.networks {
			if networks.depth(network) > maxNested {
				f.each[name].deep[pattern{text: network.String(), network: network}] = true
			}
		}
	}
	return f
}

func newEntryFile() *entryFile {
	return &entryFile{
		values: make(map[string][]int32), hashes: make(map[string][]int32),
		prefixes: make(map[string][]int32), networks: make(map[netip.Prefix][]int32),
		deep: make(map[pattern]bool),
	}
}

// choose returns which demand to file a list under: the one that shares what it
// asks for with the fewest others, so that few are found in vain. It is -1 if there
// is none.
func (f *files) choose(list []demand, shared map[filed]int) int {
	best, least := -1, [3]int{}
	for j := range list {
		c := &list[j]
		e := f.each[c.Entry]
		if e == nil || !c.indexable() {
			continue
		}
		// To hash a value costs more than to look for it, and that more than one
		// look at a table.
		cost := [3]int{0, 2*len(c.Hashes) + min(1, len(c.Prefixes)+len(c.Networks)), c.Size()}
		for _, p := range c.patterns() {
			cost[0] += shared[filed{c.Entry, p}] - 1
			if e.deep[p] {
				e = nil
				break
			}
		}
		if e != nil && (best < 0 || cmp.Or(cmp.Compare(cost[0], least[0]), cmp.Compare(cost[1], least[1]), cmp.Compare(cost[2], least[2])) < 0) {
			best, least = j, cost
		}
	}
	return best
}

// add files a list under all that its demand asks for.
func (f *files) add(c *demand, place int32) {
	e := f.each[c.Entry]
	for _, p := range c.patterns() {
		e.put(p, place)
	}
	if len(c.Hashes) > 0 {
		e.hasher = c.hasher
	}
}

func (e *entryFile) put(p pattern, place int32) {
	switch {
	case p.network.IsValid():
		put(e.networks, p.network, place)
	case p.hash:
		put(e.hashes, p.text, place)
	case p.prefix:
		put(e.prefixes, p.text, place)
	default:
		put(e.values, p.text, place)
	}
}

// put adds a place to a list that it may be the last of already.
func put[K comparable](lists map[K][]int32, key K, place int32) {
	if list := lists[key]; len(list) == 0 || list[len(list)-1] != place {
		lists[key] = append(list, place)
	}
}

// entries are the entries that something was filed under.
func (f *files) entries() []indexedEntry {
	var all []indexedEntry
	for _, name := range f.names {
		e := f.each[name]
		if len(e.values)+len(e.hashes)+len(e.prefixes)+len(e.networks) > 0 {
			all = append(all, indexedEntry{
				name: name, address: name == AddressEntry, values: e.values, hashes: e.hashes, hasher: e.hasher,
				prefixes: beginningsOf(e.prefixes), networks: networksOf(e.networks),
			})
		}
	}
	return all
}

// maxNested is how many things that a value begins with are looked up: "/" and
// "/v1/" and two more. What is nested deeper is not indexed.
const maxNested = 4

// nest finds those of many beginnings that something begins with, in the time of
// a search among them: the greatest one that does not exceed it is one of them, or
// begins with all of them. Networks are the beginnings of addresses.
type nest[T any] struct {
	keys    []T // in order, each once
	lists   [][]int32
	parents []int32 // the longest of the others that a key begins with; -1 for none
	compare func(a, b T) int
	begins  func(whole, beginning T) bool
}

func beginningsOf(lists map[string][]int32) *nest[string] {
	return newNest(lists, strings.Compare, strings.HasPrefix)
}

func networksOf(lists map[netip.Prefix][]int32) *nest[netip.Prefix] {
	return newNest(lists, compareNetworks, within)
}

// networksAmong is networksOf for networks without lists.
func networksAmong(networks []netip.Prefix) *nest[netip.Prefix] {
	lists := make(map[netip.Prefix][]int32, len(networks))
	for _, n := range networks {
		lists[n] = nil
	}
	return networksOf(lists)
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

// within reports whether one network lies in another.
func within(inner, outer netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func newNest[T comparable](lists map[T][]int32, compare func(a, b T) int, begins func(whole, beginning T) bool) *nest[T] {
	if len(lists) == 0 {
		return nil
	}
	n := &nest[T]{compare: compare, begins: begins}
	for key := range lists {
		n.keys = append(n.keys, key)
	}
	slices.SortFunc(n.keys, compare)
	for i, key := range n.keys {
		n.lists = append(n.lists, lists[key])
		parent := int32(i - 1)
		for parent >= 0 && !begins(key, n.keys[parent]) {
			parent = n.parents[parent]
		}
		n.parents = append(n.parents, parent)
	}
	return n
}

// depth is how many of the keys a key begins with, itself included.
func (n *nest[T]) depth(key T) int {
	i, _ := slices.BinarySearchFunc(n.keys, key, n.compare)
	depth := 0
	for at := int32(i); at >= 0; at = n.parents[at] {
		depth++
	}
	return depth
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

// find adds the lists of all keys that the value begins with.
func (n *nest[T]) find(value T, c *candidates) {
	for at := n.longest(value); at >= 0; at = n.parents[at] {
		c.add(n.lists[at])
	}
}
