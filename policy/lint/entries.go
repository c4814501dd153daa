package lint

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/closest"
	"github.com/headgate/headgate/policy"
)

// misspelt warns of entries whose names are so close to the name of another entry that they are
// probably misspelt, once for each rule or list. Callers may send entries of any name, so an
// unknown name alone is no reason for a warning. A policy that declares its entries is not checked,
// because it can use no others.
func (l *linter) misspelt() {
	if l.set.Declared() != nil {
		return
	}
	times := make(map[string]int)
	for m := range l.set.Mentions() {
		times[m.Entry]++
	}
	known := l.set.KnownEntries()
	names := slices.Sorted(maps.Keys(times))
	often := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return times[name] == 1 })
	meant := make(map[string]string, len(times))
	for _, name := range names {
		word := closest.Slip(name, known)
		if word == "" && times[name] == 1 && !slices.Contains(known, name) {
			word = closest.Slip(name, often)
		}
		meant[name] = word
	}
	type place struct {
		rule  *policy.Rule
		entry string
	}
	told := make(map[place]bool)
	for m := range l.set.Mentions() {
		word := meant[m.Entry]
		if word == "" || told[place{m.Rule, m.Entry}] {
			continue
		}
		told[place{m.Rule, m.Entry}] = true
		name := ""
		if m.Rule != nil {
			name = m.Rule.Name
		}
		l.about(name, m.Pos)(Misspelt, "no request has the entry %q unless its sender calls it so; did you mean %q? If not, list the entries of your own in the policy, as entries: [%s]", m.Entry, word, m.Entry)
	}
}
