package flow

import (
	"cmp"
	"slices"
	"strings"
)

// Use says how much of one key is in use at a gate.
type Use struct {
	Key string
	// InUse is how many units are in use, and Waiting how many requests wait.
	InUse, Waiting int64
}

// Uses collects the keys with the most units in use. Set Most, add keys in any order, and read
// List. It is not safe for concurrent use.
type Uses struct {
	// Most is how many keys are kept.
	Most int
	// List has the keys that were kept, those with most in use first.
	List []Use
	// More is how many keys were not kept.
	More int64
}

// Add adds a key.
func (u *Uses) Add(use Use) {
	at, _ := slices.BinarySearchFunc(u.List, use, compareUses)
	if at < u.Most {
		u.List = slices.Insert(u.List, at, use)
	}
	if at >= u.Most || len(u.List) > u.Most {
		u.List = u.List[:min(len(u.List), u.Most)]
		u.More++
	}
}

// compareUses orders by use, then by requests that wait, the largest first, then by key.
func compareUses(a, b Use) int {
	return cmp.Or(cmp.Compare(b.InUse, a.InUse), cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.Key, b.Key))
}
