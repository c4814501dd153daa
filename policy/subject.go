package policy

import (
	"fmt"
	"maps"
	"slices"
)

// MaxSubjects is how many subjects a table may have.
const MaxSubjects = 1_000_000

// Subjects is a table of clients and of what is known about them, such as their tier or their
// tenant. The table's entries replace those of the request, so that no request chooses its own
// tier.
type Subjects struct {
	// By is the entry by which clients are looked up; "api_key" if left out.
	By string
	// Table has the clients. Each may appear once.
	Table []Subject
	// Other are the entries for requests of clients that are not in the table, and for requests
	// without the entry By. If Other is empty, such requests keep the entries that they have.
	Other []Entry
	// OtherPos is where Other was written, for messages.
	OtherPos Position
	// File is the file from which the table was read, as the policy names it. It is empty if the
	// table is in the policy itself.
	File string
}

// Subject is one client.
type Subject struct {
	// Key is the client's value of the entry By. For a secret that should not be readable here, it
	// is "hash:" followed by what [Set.Hash] returns.
	Key string
	// Entries are what is known of the client.
	Entries []Entry
	// Pos is where the subject was written, for messages.
	Pos Position
}

// HashMark precedes the hash of a secret in [Subject.Key].
const HashMark = "hash:"

// defaultBy is the entry by which clients are looked up if Subjects.By is left out.
const defaultBy = "api_key"

// Names are the names of all entries that the table may add to a request, sorted. A nil table adds
// none.
func (t *Subjects) Names() []string {
	if t == nil {
		return nil
	}
	names := make(map[string]bool)
	for _, e := range t.Other {
		names[e.Name] = true
	}
	for i := range t.Table {
		for _, e := range t.Table[i].Entries {
			names[e.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (t *Subjects) clone() *Subjects {
	c := *t
	c.Table, c.Other = slices.Clone(t.Table), slices.Clone(t.Other)
	if c.By == "" {
		c.By = defaultBy
	}
	for i := range c.Table {
		c.Table[i].Entries = slices.Clone(c.Table[i].Entries)
	}
	return &c
}

// check returns what is wrong with the table. Secret names the secret entries.
func (t *Subjects) check(secret []string) []Mistake {
	var mistakes []Mistake
	bad := func(pos Position, field, format string, args ...any) {
		mistakes = append(mistakes, Mistake{Index: -1, Field: field, Pos: pos, Text: fmt.Sprintf(format, args...)})
	}
	if p := checkEntryName(t.By); p != "" {
		bad(Position{}, "subjects.by", "%s", p)
	}
	if len(t.Table) > MaxSubjects {
		bad(Position{}, "subjects", "there are %d subjects, must be at most %d", len(t.Table), MaxSubjects)
		return mistakes
	}
	t.checkEntries(t.Other, func(format string, args ...any) { bad(t.OtherPos, "subjects.*", format, args...) })
	hidden := slices.Contains(secret, t.By)
	seen := make(map[string]int32, len(t.Table))
	for i := range t.Table {
		s := &t.Table[i]
		// A table may have a million rows, and hardly any of them is wrong, so the position is made
		// only for those.
		row := func(format string, args ...any) { bad(s.Pos, fmt.Sprintf("subjects.%d", i), format, args...) }
		name := func() string { return displayed(s.Key, hidden) }
		if s.Key == "" || len(s.Key) > MaxValue {
			row("the subject %s has %d bytes, must have 1 to %d", name(), len(s.Key), MaxValue)
		}
		if hash, ok := hashOf(s.Key); ok && hidden {
			if p := checkHash(hash); p != "" {
				row("the subject %s: %s", name(), p)
			}
		}
		key := s.Key
		if t.By == addressEntry {
			key = spelled(key)
		}
		if first, twice := seen[key]; twice {
			row("the subject %s is in the table twice, first at %v; keep one", name(), t.Table[first].Pos)
		}
		seen[key] = int32(i)
		if len(s.Entries) == 0 {
			row("the subject %s has no entries; say what is known of it, such as { tier: pro }", name())
		}
		t.checkEntries(s.Entries, row)
	}
	return mistakes
}

func (t *Subjects) checkEntries(entries []Entry, bad func(format string, args ...any)) {
	if len(entries) > MaxEntries {
		bad("there are %d entries, must be at most %d", len(entries), MaxEntries)
	}
	for i, e := range entries {
		if p := checkEntryName(e.Name); p != "" {
			bad("%s", p)
		}
		if e.Value == "" || len(e.Value) > MaxValue {
			bad("entry %s: the value has %d bytes, must have 1 to %d", Quote(e.Name), len(e.Value), MaxValue)
		}
		if e.Name == t.By {
			bad("entry %s is what the table is looked up by, and cannot be set in it", Quote(e.Name))
		}
		if slices.ContainsFunc(entries[:i], func(o Entry) bool { return o.Name == e.Name }) {
			bad("entry %s is set twice; keep one", Quote(e.Name))
		}
	}
}

// displayed is a value as messages show it: a secret is not shown.
func displayed(value string, secret bool) string {
	if _, hash := hashOf(value); !secret || hash {
		return Quote(value)
	}
	return "(a secret)"
}

// hashOf cuts the mark off the hash of a secret.
func hashOf(key string) (hash string, ok bool) {
	if len(key) > len(HashMark) && key[:len(HashMark)] == HashMark {
		return key[len(HashMark):], true
	}
	return "", false
}

// compiledSubjects finds the entries of a request's client.
type compiledSubjects struct {
	by      string
	address bool
	clear   map[string][]Entry
	hashes  map[string][]Entry
	other   []Entry
	hasher  *hasher
}

func (t *Subjects) compile(secret []string, h *hasher) *compiledSubjects {
	hidden := slices.Contains(secret, t.By)
	hashes := 0
	for i := range t.Table {
		if _, hashed := hashOf(t.Table[i].Key); hashed && hidden {
			hashes++
		}
	}
	c := &compiledSubjects{
		by: t.By, address: t.By == addressEntry, other: t.Other, hasher: h,
		clear: make(map[string][]Entry, len(t.Table)-hashes), hashes: make(map[string][]Entry, hashes),
	}
	for i := range t.Table {
		s := &t.Table[i]
		hash, hashed := hashOf(s.Key)
		switch {
		case hashed && hidden:
			c.hashes[hash] = s.Entries
		case c.address:
			c.clear[spelled(s.Key)] = s.Entries
		default:
			c.clear[s.Key] = s.Entries
		}
	}
	return c
}

// find returns the table's entries for the request's client.
func (c *compiledSubjects) find(d Descriptor) []Entry {
	entries, _ := c.row(d, nil)
	return entries
}

// row returns the table's entries for a client, and whether the table knows the client. Hashed are
// entries whose hash is known and whose value is not.
func (c *compiledSubjects) row(d Descriptor, hashed []Entry) (entries []Entry, known bool) {
	for _, e := range hashed {
		if entries, known = c.hashes[e.Value]; known && e.Name == c.by {
			return entries, true
		}
	}
	value, ok := d.Get(c.by)
	if !ok {
		return c.other, false
	}
	if c.address {
		value = spelled(value)
	}
	if entries, known = c.clear[value]; known {
		return entries, true
	}
	if len(c.hashes) > 0 {
		for h := c.hasher; h != nil; h = h.next {
			var space [32]byte
			if entries, known = c.hashes[string(h.append(space[:0], c.by, value))]; known {
				return entries, true
			}
		}
	}
	return c.other, false
}
