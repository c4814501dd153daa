package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

// MaxValues is how many values, of all kinds together, one [Condition] may have.
const MaxValues = 10_000

// Condition is a demand on one entry of the descriptor. It holds if the entry is
// present and, where values of any kind are given, its value meets one of them.
// Not turns the whole around: the condition then holds if the entry is absent,
// or has another value.
type Condition struct {
	// Entry is the entry's name. Required.
	Entry string
	// Equals are whole values; none of them is empty. Those of the entry "ip"
	// are addresses, and the same in any spelling.
	Equals []string
	// Prefixes are beginnings of values; none of them is empty. Those of the entry
	// "ip" begin the one spelling of an address, without zeros that can be left out,
	// and may have capital letters.
	Prefixes []string
	// Networks hold the addresses in them. They have no bits set beyond their
	// length.
	Networks []netip.Prefix
	// Hashes are values of a secret entry that are not to be read here: what
	// [Set.Hash] makes of them.
	Hashes []string
	// Not turns the condition around.
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

// Hashed holds if the secret entry's value is one that the hashes were made of,
// by [Set.Hash].
func Hashed(entry string, hashes ...string) Condition {
	return Condition{Entry: entry, Hashes: hashes}
}

// Present holds if the entry is there, whatever its value.
func Present(entry string) Condition { return Condition{Entry: entry} }

// Absent holds if the entry is not there.
func Absent(entry string) Condition { return Condition{Entry: entry, Not: true} }

// Not holds if the condition does not. An absent entry differs from every value.
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
	if c.Entry == addressEntry {
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
