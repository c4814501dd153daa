package policy

import (
	"fmt"
	"slices"
	"time"
)

// MaxListed is how many entries an allow list or a deny list may have.
const MaxListed = 10_000

// ListEntry is one entry of an allow list or a deny list. It answers the requests that it matches
// before any rule is looked at.
type ListEntry struct {
	// Name identifies the entry in answers, logs and metrics. It has the form of a rule's name and
	// is unique among both lists. Required.
	Name string
	// Match has the conditions that must all hold: at least one.
	Match []Condition
	// Until is when the entry ends. The zero time is never.
	Until time.Time
	// Replaces matters for requests with several descriptors. If this entry answers one of the
	// descriptors, the rules and the entries of the deny list that it names do not bind the others;
	// see [Set.Replaced].
	Replaces []string
	// Pos is where the entry was written, for messages.
	Pos Position
}

func cloneList(list []ListEntry) []ListEntry {
	all := append([]ListEntry(nil), list...)
	for i := range all {
		all[i].Match, all[i].Replaces = cloneConditions(all[i].Match), slices.Clone(all[i].Replaces)
	}
	return all
}

// checkLists returns what is wrong with the lists.
func (o *options) checkLists() []Mistake {
	var mistakes []Mistake
	seen := make(map[string]bool)
	for _, list := range []struct {
		name    string
		entries []ListEntry
	}{{"deny", o.deny}, {"allow", o.allow}} {
		if len(list.entries) > MaxListed {
			mistakes = append(mistakes, Mistake{Index: -1, Field: list.name, Text: fmt.Sprintf("the %s list has %d entries, must have at most %d", list.name, len(list.entries), MaxListed)})
			continue
		}
		for i := range list.entries {
			e := &list.entries[i]
			prefix := fmt.Sprintf("%s.%d", list.name, i)
			bad := func(field, format string, args ...any) {
				mistakes = append(mistakes, Mistake{Index: -1, Field: field, Pos: e.Pos, Text: fmt.Sprintf(format, args...)})
			}
			switch p := checkListName(e.Name); {
			case p != "":
				bad(prefix+".name", "%s", p)
			case seen[e.Name]:
				bad(prefix+".name", "the name %q is taken by another entry of the allow or deny list; give each its own", e.Name)
			}
			seen[e.Name] = true
			if len(e.Match) == 0 {
				bad(prefix, "the entry %q has no conditions and would answer every request; say which", e.Name)
			}
			checkConditions(prefix+".match", e.Match, bad)
		}
	}
	return mistakes
}

// checkListName returns what is wrong with the name of a list's entry, or "".
func checkListName(name string) string {
	const most = 128
	if name == "" || len(name) > most {
		return fmt.Sprintf("the name %s has %d bytes, must have 1 to %d", Quote(name), len(name), most)
	}
	for i, c := range name {
		if c <= ' ' || c == 0x7f || c == '{' || c == '}' || c == '\uFFFD' {
			return fmt.Sprintf("the name %s has %q at byte %d; spaces, control characters and braces are not allowed", Quote(name), c, i)
		}
	}
	return ""
}

func compileList(list []ListEntry, h *hasher) *lists {
	return newLists(len(list), func(i int) ([]Condition, time.Time) { return list[i].Match, list[i].Until }, h)
}
