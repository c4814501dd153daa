package lint

import (
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/closest"
	"github.com/headgate/headgate/policy"
)

// lists warns of entries of the deny list and the allow list.
func (l *linter) lists() {
	s := l.set
	for _, list := range []struct {
		name    string
		entries []policy.ListEntry
	}{{"deny", s.Denied()}, {"allow", s.Allowed()}} {
		for i := range list.entries {
			e := &list.entries[i]
			warn := l.about("", e.Pos)
			if s.Ended(e.Until) {
				warn(Ended, "the entry %q of the %s list has ended at %s; take it out", e.Name, list.name, formatTime(e.Until))
			}
			for j := range e.Match {
				c := &e.Match[j]
				if readable(s, c) {
					warn(ClearSecret, "the entry %q of the %s list has the secret %s in the clear; write its hash, as { hash: ... }", e.Name, list.name, c.Entry)
				}
				if list.name == "allow" && forgeable(c.Entry) {
					warn(Forgeable, "the entry %q of the allow list believes %q, a header that any client can set; go by \"ip\", which is an address that has been seen", e.Name, c.Entry)
				}
			}
		}
	}
}

// subjects warns of mistakes in the table of subjects.
func (l *linter) subjects() {
	if t := l.set.Subjects(); t != nil {
		l.clearSubjects(t)
		l.unknownTiers(t)
	}
}

// clearSubjects warns, once, if the table lists clients by secrets in the clear.
func (l *linter) clearSubjects(t *policy.Subjects) {
	if !l.set.Secret(t.By) {
		return
	}
	readable, first := 0, policy.Position{}
	for i := range t.Table {
		if hash, marked := strings.CutPrefix(t.Table[i].Key, policy.HashMark); !marked || hash == "" {
			if readable++; readable == 1 {
				first = t.Table[i].Pos
			}
		}
	}
	if readable > 0 {
		l.about("", first)(ClearSecret, "the table of subjects has %d values of the secret %s in the clear; write their hashes, as %s...", readable, t.By, policy.HashMark)
	}
}

// maxUnknownTiers is how many unknown tiers of one entry have a warning each. A table may have a
// million rows with a tariff by tenant, in which most tenants are meant to have the limits for all
// others.
const maxUnknownTiers = 20

// unknownTiers warns of tiers in the table that no rule has limits for.
func (l *linter) unknownTiers(t *policy.Subjects) {
	tariffs := make(map[string]*policy.Tariff) // by entry, the first one
	known := make(map[policy.Entry]bool)       // the tiers that have limits or a warning
	for i := range l.rules {
		tariff := l.rules[i].Tariff
		if tariff == nil {
			continue
		}
		if tariffs[tariff.Entry] == nil {
			tariffs[tariff.Entry] = tariff
		}
		for _, tier := range tariff.Tiers {
			known[policy.Entry{Name: tariff.Entry, Value: tier.Value}] = true
		}
	}
	unknown := make(map[string]int)          // by entry, how many tiers
	more := make(map[string]policy.Position) // by entry, the first place without a warning
	check := func(entries []policy.Entry, pos policy.Position) {
		for _, e := range entries {
			tariff := tariffs[e.Name]
			if tariff == nil || known[e] {
				continue
			}
			known[e] = true
			unknown[e.Name]++
			switch n := unknown[e.Name]; {
			case n == maxUnknownTiers+1:
				more[e.Name] = pos
			case n <= maxUnknownTiers:
				there := policy.Condition{Entry: e.Name}
				for _, tier := range tariff.Tiers {
					there.Equals = append(there.Equals, tier.Value)
				}
				l.about("", pos)(UnknownTier, "the table of subjects has the %s %s, which no rule has limits for; there are %s",
					e.Name, policy.Quote(e.Value), there.Describe(false))
			}
		}
	}
	for i := range t.Table {
		check(t.Table[i].Entries, t.Table[i].Pos)
	}
	check(t.Other, t.OtherPos)
	for _, name := range slices.Sorted(maps.Keys(more)) {
		l.about("", more[name])(UnknownTier, "the table of subjects has values of %s from here on, %d in all, which no rule has limits for and which are not listed",
			name, unknown[name]-maxUnknownTiers)
	}
}

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
