package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

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

// find adds the lists of all keys that the value begins with.
func (n *nest[T]) find(value T, c *candidates) {
	i, found := slices.BinarySearchFunc(n.keys, value, n.compare)
	if !found {
		i--
	}
	at := int32(i)
	for at >= 0 && !n.begins(value, n.keys[at]) {
		at = n.parents[at]
	}
	for ; at >= 0; at = n.parents[at] {
		c.add(n.lists[at])
	}
}
