package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate"
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
