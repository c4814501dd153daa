package policy

import (
	"slices"
	"strings"
)

// demand is a condition, compiled.
type demand struct {
	Condition // Equals are sorted, each once.
	address   bool
	networks  *networks
	hasher    *hasher
}

// compileConditions returns the conditions compiled, independent of the caller's
// slices.
func compileConditions(conditions []Condition, h *hasher) []demand {
	if len(conditions) == 0 {
		return nil
	}
	all := make([]demand, len(conditions))
	for i := range conditions {
		all[i] = conditions[i].compiled(h)
	}
	return all
}

func (c *Condition) compiled(h *hasher) demand {
	d := demand{Condition: c.clone(), address: c.Entry == addressEntry, networks: newNetworks(c.Networks), hasher: h}
	if d.address {
		for i, v := range d.Equals {
			d.Equals[i] = spelled(v)
		}
		for i, v := range d.Prefixes {
			d.Prefixes[i] = strings.ToLower(v)
		}
	}
	slices.Sort(d.Equals)
	d.Equals = slices.Compact(d.Equals)
	slices.Sort(d.Hashes)
	return d
}

// clone returns a copy that is independent of the caller's slices.
func (c *Condition) clone() Condition {
	d := *c
	d.Equals = slices.Clone(c.Equals)
	d.Prefixes = slices.Clone(c.Prefixes)
	d.Networks = slices.Clone(c.Networks)
	d.Hashes = slices.Clone(c.Hashes)
	return d
}

func cloneConditions(conditions []Condition) []Condition {
	all := slices.Clone(conditions)
	for i := range all {
		all[i] = all[i].clone()
	}
	return all
}

// holdAll reports whether the descriptor meets all demands.
func holdAll(demands []demand, d Descriptor) bool {
	for i := range demands {
		if !demands[i].holds(d) {
			return false
		}
	}
	return true
}

// holds reports whether the descriptor meets the demand.
func (c *demand) holds(d Descriptor) bool {
	value, ok := d.Get(c.Entry)
	return (ok && (c.bare() || c.covers(value))) != c.Not
}

// covers reports whether the value meets one of the condition's.
func (c *demand) covers(value string) bool {
	if c.address && len(c.Equals)+len(c.Prefixes)+len(c.Hashes) > 0 {
		value = spelled(value)
	}
	if len(c.Equals) == 1 {
		if c.Equals[0] == value {
			return true
		}
	} else if _, found := slices.BinarySearch(c.Equals, value); found {
		return true
	}
	if slices.ContainsFunc(c.Prefixes, func(p string) bool { return strings.HasPrefix(value, p) }) {
		return true
	}
	if c.networks != nil && c.networks.contains(value) {
		return true
	}
	if len(c.Hashes) == 0 {
		return false
	}
	for h := c.hasher; h != nil; h = h.next {
		var space [32]byte
		hash := h.append(space[:0], c.Entry, value)
		if _, found := slices.BinarySearchFunc(c.Hashes, hash, func(h string, want []byte) int {
			return strings.Compare(h, string(want))
		}); found {
			return true
		}
	}
	return false
}
