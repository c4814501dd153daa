package policy

import (
	"cmp"
	"net/netip"
)

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
				name: name, address: name == addressEntry, values: e.values, hashes: e.hashes, hasher: e.hasher,
				prefixes: beginningsOf(e.prefixes), networks: networksOf(e.networks),
			})
		}
	}
	return all
}
