package policy

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/closest"
)

// The bounds of a [Descriptor] that comes from outside.
const (
	// MaxEntries is how many entries a descriptor may have.
	MaxEntries = 32
	// MaxName is the longest name of an entry, in bytes.
	MaxName = 64
	// MaxValue is the longest value of an entry, in bytes. Most servers accept HTTP headers of that
	// length, and a value may be a token from a header.
	MaxValue = 8192
)

// Entry is one fact about a request.
type Entry struct{ Name, Value string }

// Descriptor holds the facts about a request. Names are unique; if two entries have the same name,
// the first counts. It is a small slice and not a map, so that it can be built and read for each
// request without allocating.
type Descriptor []Entry

// Get returns the entry's value. An entry with an empty value is absent.
func (d Descriptor) Get(name string) (value string, ok bool) {
	for i := range d {
		if d[i].Name == name {
			return d[i].Value, d[i].Value != ""
		}
	}
	return "", false
}

// FromMap returns a descriptor with the map's entries, sorted by name. If there are more than
// MaxEntries, or if names or values are out of bounds, it returns a [*headgate.InvalidError] with
// every mistake.
func FromMap(m map[string]string) (Descriptor, error) {
	if len(m) > MaxEntries {
		return nil, headgate.Invalid("descriptor", "", "it has %d entries, must have at most %d", len(m), MaxEntries)
	}
	d := make(Descriptor, 0, len(m))
	for name, value := range m {
		d = append(d, Entry{name, value})
	}
	slices.SortFunc(d, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	var problems headgate.Problems
	for _, e := range d {
		if p := checkEntryName(e.Name); p != "" {
			problems.Add(e.Name, "%s", p)
		}
		if len(e.Value) > MaxValue {
			problems.Add(e.Name, "entry %s: the value has %d bytes, must have at most %d", Quote(e.Name), len(e.Value), MaxValue)
		}
	}
	if err := problems.Err("descriptor"); err != nil {
		return nil, err
	}
	return d, nil
}

// checkEntryName returns what is wrong with an entry's name, or "".
func checkEntryName(name string) string {
	if name == "" || len(name) > MaxName {
		return fmt.Sprintf("entry %s: the name has %d bytes, must have 1 to %d", Quote(name), len(name), MaxName)
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.', c == ':':
		default:
			return fmt.Sprintf("entry %s: the name has %q at byte %d; it may have letters, digits and _ - . : only", Quote(name), c, i)
		}
	}
	return ""
}

// Quote quotes a text from outside for use in a message. It cuts the text after MaxName bytes.
func Quote(s string) string {
	if len(s) > MaxName {
		return fmt.Sprintf("%q...", s[:MaxName])
	}
	return fmt.Sprintf("%q", s)
}

// MaxDeclared is how many entries [Entries] may name.
const MaxDeclared = 1000

// doorEntries are the entries that some door fills in by itself, and those that by convention
// identify callers. docs/rules.md says which door fills in which of them.
var doorEntries = []string{"api_key", "authorization", "domain", "host", "ip", "method", "model", "path", "route", "service", "token", "user"}

// Entries names the entries that requests have in addition to those that the doors fill in. With
// it, a rule or a list that uses any other entry is a mistake; without any name, requests have only
// the entries that the doors fill in. If Entries is not given, every name is allowed, because
// callers may send entries of any name; a condition on a misspelled name then never holds.
func Entries(entries ...string) Option {
	return func(o *options) {
		if o.declared = append(o.declared, entries...); o.declared == nil {
			o.declared = []string{}
		}
	}
}

// Declared returns the entries of [Entries], in the order given: nil without it, and empty but
// not nil if it was given no name. The slice is shared and must not be changed.
func (s *Set) Declared() []string { return s.options.declared }

// KnownEntries returns the names of all entries that a request is known to have, sorted: those that
// doors fill in, those declared with [Entries], the secret ones, and those that the table of
// subjects adds.
func (s *Set) KnownEntries() []string {
	o := &s.options
	all := slices.Concat(doorEntries, o.declared, o.secrets, o.subjects.Names())
	slices.Sort(all)
	return slices.Compact(all)
}

// Mention is one place in a set that uses an entry.
type Mention struct {
	// Entry is the entry's name.
	Entry string
	// Rule is the rule that uses it, or nil if a list or the table of subjects does.
	Rule *Rule
	// Field is the place in the rule or in the options, in the words of [Mistake.Field].
	Field string
	// Pos is where the use was written.
	Pos Position

	index int // of the rule; -1 without one
}

// Mentions returns all places that use an entry: in the rules, the deny list, the allow list, the
// models and the table of subjects, in this order.
func (s *Set) Mentions() iter.Seq[Mention] {
	return func(yield func(Mention) bool) {
		more := true
		mention := func(entry string, r *Rule, field string, pos Position, i int) {
			more = more && yield(Mention{entry, r, field, pos, i})
		}
		for i := range s.rules {
			r := &s.rules[i]
			r.eachEntry(func(field, entry string) { mention(entry, r, field, r.At(field), i) })
		}
		s.options.eachListed(func(field string, e *ListEntry) {
			for j := range e.Match {
				mention(e.Match[j].Entry, nil, fmt.Sprintf("%s.match.%d", field, j), e.Pos, -1)
			}
		})
		for i, m := range s.options.models {
			if m.OutputTiers != nil {
				mention(m.OutputTiers.Entry, nil, fmt.Sprintf("models.%d.max_output", i), Position{}, -1)
			}
		}
		if s.options.subjects != nil {
			mention(s.options.subjects.By, nil, "subjects", Position{}, -1)
		}
	}
}

// eachEntry calls f for each entry that the rule looks at, with the field that does.
func (r *Rule) eachEntry(f func(field, entry string)) {
	for i := range r.Match {
		f(fmt.Sprintf("match.%d", i), r.Match[i].Entry)
	}
	for i := range r.Per {
		f(fmt.Sprintf("per.%d", i), r.Per[i].Entry)
	}
	if r.Tariff != nil {
		f("tariff", r.Tariff.Entry)
	}
	if r.InProgress != nil && r.InProgress.Entry != "" {
		f("in_progress", r.InProgress.Entry)
	}
	if r.Costs != nil {
		f("cost", r.Costs.Entry)
	}
	for i := range r.Overrides {
		for j := range r.Overrides[i].Match {
			f(fmt.Sprintf("overrides.%d.match.%d", i, j), r.Overrides[i].Match[j].Entry)
		}
	}
}

// checkDeclared reports each use of an entry that no request has, if the options say which entries
// there are.
func (s *Set) checkDeclared() {
	if s.options.declared == nil {
		return
	}
	known := s.KnownEntries()
	for m := range s.Mentions() {
		// An invalid name is a mistake that has been reported already.
		if _, ok := slices.BinarySearch(known, m.Entry); ok || checkEntryName(m.Entry) != "" {
			continue
		}
		one := Mistake{Index: m.index, Field: m.Field, Pos: m.Pos}
		if m.Rule != nil {
			one.Rule = m.Rule.Name
		}
		advice := "if it is right, add it to entries"
		if word := closest.Word(m.Entry, known); word != "" {
			advice = fmt.Sprintf("did you mean %q? If not, add it to entries", word)
		}
		one.Text = fmt.Sprintf("the entry %q is not known: no door fills it in, and it is not among the policy's entries; %s", m.Entry, advice)
		s.options.mistakes = append(s.options.mistakes, one)
	}
}

// Entries are the names of all entries that the set may look at, sorted. A caller that makes
// descriptors needs no others.
func (s *Set) Entries() []string {
	names := make(map[string]bool)
	for m := range s.Mentions() {
		names[m.Entry] = true
	}
	return slices.Sorted(maps.Keys(names))
}
