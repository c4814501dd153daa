package policy

import (
	"fmt"
	"slices"
	"strings"
)

// MaxValues is how many values and prefixes one [Condition] may have.
const MaxValues = 10_000

// Condition is a demand on one entry of the descriptor. It holds if the entry is
// present and, where Equals or Prefixes are given, its value is one of Equals or
// begins with one of Prefixes. Not turns the whole around: the condition then
// holds if the entry is absent, or has another value.
type Condition struct {
	// Entry is the entry's name. Required.
	Entry string
	// Equals are whole values; none of them is empty.
	Equals []string
	// Prefixes are beginnings of values; none of them is empty.
	Prefixes []string
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
func (c *Condition) bare() bool { return len(c.Equals) == 0 && len(c.Prefixes) == 0 }

// holds reports whether the descriptor meets the condition. Equals must be
// sorted.
func (c *Condition) holds(d Descriptor) bool {
	value, ok := d.Get(c.Entry)
	return (ok && (c.bare() || c.covers(value))) != c.Not
}

// covers reports whether the value is one of Equals, which must be sorted, or
// begins with one of Prefixes.
func (c *Condition) covers(value string) bool {
	if len(c.Equals) == 1 {
		if c.Equals[0] == value {
			return true
		}
	} else if _, found := slices.BinarySearch(c.Equals, value); found {
		return true
	}
	return slices.ContainsFunc(c.Prefixes, func(p string) bool { return strings.HasPrefix(value, p) })
}

// check returns what is wrong with the condition, or "".
func (c *Condition) check() string {
	if p := checkEntryName(c.Entry); p != "" {
		return p
	}
	if n := len(c.Equals) + len(c.Prefixes); n > MaxValues {
		return fmt.Sprintf("entry %q: there are %d values, must be at most %d", c.Entry, n, MaxValues)
	}
	for _, values := range [][]string{c.Equals, c.Prefixes} {
		for _, v := range values {
			if v == "" || len(v) > MaxValue {
				return fmt.Sprintf("entry %q: the value %s has %d bytes, must have 1 to %d; for a missing entry ask that it be absent", c.Entry, quote(v), len(v), MaxValue)
			}
		}
	}
	return ""
}

// compiled returns a copy that is independent of the caller's slices, with
// Equals sorted.
func (c *Condition) compiled() Condition {
	e := slices.Clone(c.Equals)
	slices.Sort(e)
	return Condition{Entry: c.Entry, Equals: slices.Compact(e), Prefixes: slices.Clone(c.Prefixes), Not: c.Not}
}
