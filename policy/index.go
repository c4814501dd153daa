package policy

import (
	"cmp"
	"maps"
	"slices"
)

// maxIndexed is how many entries are indexed: each costs a lookup for every
// request.
const maxIndexed = 4

// index finds the rules that may bind a request without looking at the others.
// A rule that demands one of some values for an indexed entry is filed under
// those values; all others are in rest, and are looked at for every request.
// Every list is in the order of the rules, and a rule is in one entry's lists
// only.
type index struct {
	entries []indexedEntry
	rest    []int32
}

type indexedEntry struct {
	name  string
	rules map[string][]int32
}

// newIndex files the rules under the entries that most of them demand a value
// of, and takes the condition that the index answers out of the compiled rule.
func newIndex(rules []Rule, compiled []compiled) index {
	uses := make(map[string]int)
	for i := range compiled {
		for j := range compiled[i].conditions {
			if c := &compiled[i].conditions[j]; c.indexable() {
				uses[c.Entry]++
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(uses), func(a, b string) int {
		return cmp.Or(cmp.Compare(uses[b], uses[a]), cmp.Compare(a, b))
	})
	var x index
	for _, name := range names[:min(maxIndexed, len(names))] {
		x.entries = append(x.entries, indexedEntry{name, make(map[string][]int32)})
	}
	for i := range compiled {
		if rules[i].Direct {
			continue
		}
		entry, condition := x.choose(compiled[i].conditions)
		if condition < 0 {
			x.rest = append(x.rest, int32(i))
			continue
		}
		under := x.entries[entry].rules
		for _, value := range compiled[i].conditions[condition].Equals {
			under[value] = append(under[value], int32(i))
		}
		compiled[i].conditions = slices.Delete(compiled[i].conditions, condition, condition+1)
	}
	return x
}

func (c *Condition) indexable() bool {
	return !c.Not && len(c.Equals) > 0 && len(c.Prefixes) == 0
}

// choose returns which indexed entry and which condition to file a rule under:
// the one with the fewest values. The condition is -1 if there is none.
func (x *index) choose(conditions []Condition) (entry, condition int) {
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

// candidates walks through some lists of rules as if they were one.
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
		if value, ok := d.Get(x.entries[i].name); ok {
			add(x.entries[i].rules[value])
		}
	}
	return c
}

// next returns the next rule in the order of the rules.
func (c *candidates) next() (rule int32, ok bool) {
	least := -1
	for i := range c.n {
		if len(c.lists[i]) > 0 && (least < 0 || c.lists[i][0] < rule) {
			least, rule = i, c.lists[i][0]
		}
	}
	if least < 0 {
		return 0, false
	}
	c.lists[least] = c.lists[least][1:]
	return rule, true
}
