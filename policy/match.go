package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// MaxValues is how many values one [Condition] may have, of all kinds together.
const MaxValues = 10_000

// Condition is a condition on one entry of the descriptor. Without values, it holds if the entry is
// present. With values, it holds if the entry's value meets one of them, of whichever kind. Not
// inverts the condition: it then holds if the entry is absent or, with values, has another value.
type Condition struct {
	// Entry is the entry's name. Required.
	Entry string
	// Equals are whole values, none of which is empty. For the entry "ip" they are addresses, in
	// any spelling.
	Equals []string
	// Prefixes are beginnings of values, none of which is empty. For the entry "ip" they must be
	// beginnings of an address in its shortest spelling; capital letters are allowed.
	Prefixes []string
	// Networks are met by the addresses in them. No bits may be set beyond their length.
	Networks []netip.Prefix
	// Hashes stand for values of a secret entry that should not be readable here: each is what
	// [Set.Hash] returns for a value.
	Hashes []string
	// Not inverts the condition.
	Not bool
}

// Equal holds if the entry has one of the values.
func Equal(entry string, values ...string) Condition {
	return Condition{Entry: entry, Equals: values}
}

// Prefix holds if the entry's value begins with one of the prefixes.
func Prefix(entry string, prefixes ...string) Condition {
	return Condition{Entry: entry, Prefixes: prefixes}
}

// Network holds if the entry is an address in one of the networks.
func Network(entry string, networks ...netip.Prefix) Condition {
	return Condition{Entry: entry, Networks: networks}
}

// Hashed holds if one of the hashes is what [Set.Hash] returns for the value of the secret entry.
func Hashed(entry string, hashes ...string) Condition {
	return Condition{Entry: entry, Hashes: hashes}
}

// Present holds if the entry is there, whatever its value.
func Present(entry string) Condition { return Condition{Entry: entry} }

// Absent holds if the entry is not there.
func Absent(entry string) Condition { return Condition{Entry: entry, Not: true} }

// Not holds if the condition does not. If it names values, it holds for an absent entry, too.
func Not(c Condition) Condition {
	c.Not = !c.Not
	return c
}

// bare reports whether the condition asks for presence or absence only.
func (c *Condition) bare() bool { return c.Size() == 0 }

// Size is how many values of all kinds the condition has: zero if it asks only that the
// entry be present or absent.
func (c *Condition) Size() int {
	return len(c.Equals) + len(c.Prefixes) + len(c.Networks) + len(c.Hashes)
}

// check returns what is wrong with the condition, or "".
func (c *Condition) check() string {
	if p := checkEntryName(c.Entry); p != "" {
		return p
	}
	if n := c.Size(); n > MaxValues {
		return fmt.Sprintf("entry %q: there are %d values, must be at most %d", c.Entry, n, MaxValues)
	}
	for _, values := range [][]string{c.Equals, c.Prefixes} {
		for _, v := range values {
			if v == "" || len(v) > MaxValue {
				return fmt.Sprintf("entry %q: the value %s has %d bytes, must have 1 to %d; for a missing entry ask that it be absent", c.Entry, Quote(v), len(v), MaxValue)
			}
		}
	}
	if c.Entry == AddressEntry {
		for _, v := range c.Equals {
			if strings.Contains(v, "/") {
				return fmt.Sprintf("entry %q: %s is no network; write an address and a length, such as 192.0.2.0/24", c.Entry, Quote(v))
			}
		}
	}
	for _, n := range c.Networks {
		switch {
		case !n.IsValid():
			return fmt.Sprintf("entry %q: %v is no network", c.Entry, n)
		case n != n.Masked():
			return fmt.Sprintf("entry %q: the network %v has bits set beyond its length; write %v", c.Entry, n, n.Masked())
		case n.Addr().Is4In6():
			return fmt.Sprintf("entry %q: the network %v is IPv4 inside IPv6, which addresses are never compared as; write it as IPv4", c.Entry, n)
		}
	}
	for _, h := range c.Hashes {
		if p := checkHash(h); p != "" {
			return fmt.Sprintf("entry %q: %s", c.Entry, p)
		}
	}
	return ""
}

// pattern is one value of a condition: a whole value, the beginning of a value, a network, or the
// hash of a secret. Networks have their text, too.
type pattern struct {
	text    string
	prefix  bool
	hash    bool
	network netip.Prefix
}

// patterns returns all values of the condition.
func (c *Condition) patterns() []pattern {
	p := make([]pattern, 0, c.Size())
	for _, v := range c.Equals {
		if c.Entry == AddressEntry {
			v = spelled(v)
		}
		p = append(p, pattern{text: v})
	}
	for _, v := range c.Prefixes {
		p = append(p, pattern{text: v, prefix: true})
	}
	for _, n := range c.Networks {
		p = append(p, pattern{text: n.String(), network: n})
	}
	for _, h := range c.Hashes {
		p = append(p, pattern{text: h, hash: true})
	}
	return p
}

// few is how many values a message names, if there are many.
const few = 3

// Describe lists the first few values of the condition for a message, each in quotes, and says how
// many more there are. Values of a secret entry are shown as hashes.
func (c *Condition) Describe(secret bool) string {
	// A condition may have ten thousand values, so that the others are not looked at.
	head := *c
	head.Equals, head.Prefixes = c.Equals[:min(few, len(c.Equals))], c.Prefixes[:min(few, len(c.Prefixes))]
	head.Networks, head.Hashes = c.Networks[:min(few, len(c.Networks))], c.Hashes[:min(few, len(c.Hashes))]
	patterns := head.patterns()
	var texts []string
	for _, p := range patterns[:min(few, len(patterns))] {
		text := fmt.Sprintf("%q", p.text)
		switch {
		case secret && !p.hash:
			text = "(a secret)"
		case p.prefix:
			text = fmt.Sprintf("%q", p.text+"*")
		}
		texts = append(texts, text)
	}
	text := strings.Join(texts, ", ")
	if more := c.Size() - len(texts); more > 0 {
		text = fmt.Sprintf("%s and %d more", text, more)
	}
	return text
}

// Names reports whether the condition names a value, or a network that it is in. Conditions with Not
// name nobody.
func (s *Set) Names(c *Condition, value string) bool {
	if c.Size() == 0 || c.Not {
		return false
	}
	one := c.compiled(s.hasher)
	return one.holds(Descriptor{{Name: c.Entry, Value: value}})
}

// demand is a condition, compiled.
type demand struct {
	Condition // Equals are sorted, each once.
	address   bool
	networks  *nest[netip.Prefix]
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
	d := demand{Condition: c.clone(), address: c.Entry == AddressEntry, networks: newNest(slices.Clone(c.Networks), compareNetworks, lies), hasher: h}
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
	if c.networks != nil {
		if address, err := netip.ParseAddr(value); err == nil && c.networks.longest(single(address)) >= 0 {
			return true
		}
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

// AddressEntry is the entry whose values are addresses without being told so.
const AddressEntry = "ip"

// spelled returns the one spelling of an address, or the value itself if it is
// none. It allocates only if the spelling differs.
func spelled(value string) string {
	a, err := netip.ParseAddr(value)
	if err != nil {
		return value
	}
	var space [64]byte
	text := a.Unmap().WithZone("").AppendTo(space[:0])
	if string(text) == value {
		return value
	}
	return string(text)
}
