package policy

import (
	"fmt"
	"net/netip"
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
