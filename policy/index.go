package policy

import (
	"cmp"
	"maps"
	"slices"
)

// maxIndexed is how many entries are indexed: each costs a lookup for every
// request.
const maxIndexed = 4

// index finds those of many lists of demands that a request may meet, without
// looking at the others: one list for each rule, for instance. A list that
// demands one of some values for an indexed entry is filed under those values;
// all others are in rest, and are looked at for every request. What is filed is
// in the order of the lists, and a list is filed under one entry only.
type index struct {
	entries []indexedEntry
	rest    []int32
}

type indexedEntry struct {
	name    string
	address bool
	lists   map[string][]int32
}

// newIndex files the lists under the entries that most of them demand a value
// of, and takes the demand that the index answers out of its list. A nil list is
// never found.
func newIndex(lists []*[]demand) index {
	uses := make(map[string]int)
	for _, list := range lists {
		if list == nil {
			continue
		}
		for j := range *list {
			if c := &(*list)[j]; c.indexable() {
				uses[c.Entry]++
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(uses), func(a, b string) int {
		return cmp.Or(cmp.Compare(uses[b], uses[a]), cmp.Compare(a, b))
	})
	var x index
	for _, name := range names[:min(maxIndexed, len(names))] {
		x.entries = append(x.entries, indexedEntry{name, name == addressEntry, make(map[string][]int32)})
	}
	for i, list := range lists {
		if list == nil {
			continue
		}
		entry, condition := x.choose(*list)
		if condition < 0 {
			x.rest = append(x.rest, int32(i))
			continue
		}
		under := x.entries[entry].lists
		for _, value := range (*list)[condition].Equals {
			under[value] = append(under[value], int32(i))
		}
		*list = slices.Delete(*list, condition, condition+1)
	}
	return x
}

func (c *Condition) indexable() bool {
	return !c.Not && len(c.Equals) > 0 && len(c.Equals) == c.size()
}

// choose returns which indexed entry and which demand to file a list under: the
// one with the fewest values. The condition is -1 if there is none.
func (x *index) choose(conditions []demand) (entry, condition int) {
	condition = -1
	for i := range conditions {
		c := &conditions[i]
		if !c.indexable() || condition >= 0 && len(c.Equals) >= len(conditions[condition].Equals) {
			continue
		}
		for j := range x.entries {
			if x.entries[j].name == c.Entry {
				entry, condition = j, i
			}
		}
	}
	return entry, condition
}

// candidates walks through some lists of places as if they were one.
type candidates struct {
	lists [maxIndexed + 1][]int32
	n     int
}

func (x *index) candidates(d Descriptor) candidates {
	var c candidates
	add := func(list []int32) {
		if len(list) > 0 {
			c.lists[c.n] = list
			c.n++
		}
	}
	add(x.rest)
	for i := range x.entries {
		e := &x.entries[i]
		if value, ok := d.Get(e.name); ok {
			if e.address {
				value = spelled(value)
			}
			add(e.lists[value])
		}
	}
	return c
}

// next returns the next place, in ascending order.
func (c *candidates) next() (place int32, ok bool) {
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
	return place, true
}
