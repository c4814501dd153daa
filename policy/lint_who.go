package policy

import (
	"maps"
	"slices"
	"strings"
)

// lists warns of entries of the lists.
func (l *linter) lists() {
	s := l.set
	for _, list := range []struct {
		name    string
		entries []ListEntry
	}{{"deny", s.options.deny}, {"allow", s.options.allow}} {
		for i := range list.entries {
			e := &list.entries[i]
			warn := l.about("", e.Pos)
			if ended(e.Until, s.now) {
				warn(CodeEnded, "the entry %q of the %s list has ended at %s; take it out", e.Name, list.name, e.Until.UTC().Format(timeFormat))
			}
			for j := range e.Match {
				if c := &e.Match[j]; s.readable(c) {
					warn(CodeClearSecret, "the entry %q of the %s list has the secret %s in the clear; write its hash, as { hash: ... }", e.Name, list.name, c.Entry)
				}
				if list.name == "allow" && forgeable(e.Match[j].Entry) {
					warn(CodeForgeable, "the entry %q of the allow list believes %q, a header that any client can set; go by \"ip\", which is an address that has been seen", e.Name, e.Match[j].Entry)
				}
			}
		}
	}
}

// maxUnknownTiers is how many tiers of the table are told of one by one, since it may
// have a million rows: those of a tariff by tenant, for instance, most of which are
// meant to have the limits of all others.
const maxUnknownTiers = 20

// subjects warns of the table of clients.
func (l *linter) subjects() {
	s, t := l.set, l.set.options.subjects
	if t == nil {
		return
	}
	if s.secret(t.By) {
		readable, first := 0, Position{}
		for i := range t.Table {
			if _, hashed := hashOf(t.Table[i].Key); !hashed {
				if readable++; readable == 1 {
					first = t.Table[i].Pos
				}
			}
		}
		if readable > 0 {
			l.about("", first)(CodeClearSecret, "the table of subjects has %d values of the secret %s in the clear; write their hashes, as %s...", readable, t.By, HashMark)
		}
	}
	first := make(map[string]*Tariff) // by the entry
	known := make(map[Entry]bool)
	for i := range s.rules {
		tariff := s.rules[i].Tariff
		if tariff == nil {
			continue
		}
		if first[tariff.Entry] == nil {
			first[tariff.Entry] = tariff
		}
		for _, tier := range tariff.Tiers {
			known[Entry{tariff.Entry, tier.Value}] = true
		}
	}
	unknown := make(map[string]int) // how many values, by the entry
	next := make(map[string]Position)
	check := func(entries []Entry, pos Position) {
		for _, e := range entries {
			tariff := first[e.Name]
			if tariff == nil || known[e] {
				continue
			}
			known[e] = true
			if unknown[e.Name]++; unknown[e.Name] > maxUnknownTiers {
				if unknown[e.Name] == maxUnknownTiers+1 {
					next[e.Name] = pos
				}
				continue
			}
			var names []string
			for _, tier := range tariff.Tiers {
				names = append(names, quote(tier.Value))
			}
			l.about("", pos)(CodeUnknownTier, "the table of subjects has the %s %s, which no rule has limits for; there are %s", e.Name, quote(e.Value), some(names))
		}
	}
	for i := range t.Table {
		check(t.Table[i].Entries, t.Table[i].Pos)
	}
	check(t.Other, t.OtherPos)
	for _, name := range slices.Sorted(maps.Keys(next)) {
		l.about("", next[name])(CodeUnknownTier, "the table of subjects has values of %s from here on, %d in all, which no rule has limits for and which are not listed", name, unknown[name]-maxUnknownTiers)
	}
}

// readable reports whether the condition has values of a secret in the clear.
func (s *Set) readable(c *Condition) bool {
	return s.secret(c.Entry) && len(c.Equals)+len(c.Prefixes) > 0
}

// lintClear warns of secrets in the clear, once for each entry.
func (s *Set) lintClear(r *Rule, warn warnFunc) {
	var told []string
	tell := func(entry, advice string) {
		if !slices.Contains(told, entry) {
			told = append(told, entry)
			warn(CodeClearSecret, "it has values of the secret %s in the clear; %s", entry, advice)
		}
	}
	conditions := func(list []Condition) {
		for i := range list {
			if s.readable(&list[i]) {
				tell(list[i].Entry, "write their hashes, as { hash: ... }")
			}
		}
	}
	conditions(r.Match)
	for i := range r.Overrides {
		conditions(r.Overrides[i].Match)
	}
	const advice = "give the clients a tier or the like in the table of subjects, and go by that"
	if r.Tariff != nil && s.secret(r.Tariff.Entry) && len(r.Tariff.Tiers) > 0 {
		tell(r.Tariff.Entry, advice)
	}
	if r.Costs != nil && s.secret(r.Costs.Entry) {
		tell(r.Costs.Entry, advice)
	}
}

// lintTariff warns of requests that pass by a rule for want of a tier.
func lintTariff(r *Rule, warn warnFunc) {
	t := r.Tariff
	if t == nil || t.Other != nil {
		return
	}
	for i := range r.Match {
		c := &r.Match[i]
		if c.Entry == t.Entry && !c.Not && len(c.Equals) > 0 && len(c.Equals) == c.size() &&
			!slices.ContainsFunc(c.Equals, func(v string) bool { return !t.knows(v) }) {
			return
		}
	}
	warn(CodeOpenTariff, "it does not bind requests with another %s than it has limits for, nor those without one; add \"*\" with limits for them", t.Entry)
}

// headers are names of headers in which proxies pass on an address, and which
// any client can set.
var headers = []string{
	"x-forwarded-for", "x-real-ip", "forwarded", "true-client-ip", "cf-connecting-ip", "client-ip", "x-client-ip",
	"x-cluster-client-ip", "x-original-forwarded-for", "fastly-client-ip", "forwarded-for",
}

// forgeable reports whether an entry has the name of such a header.
func forgeable(entry string) bool {
	return slices.Contains(headers, strings.ReplaceAll(strings.ToLower(entry), "_", "-"))
}

// lintForgeable warns of addresses that a client can choose.
func lintForgeable(r *Rule, warn warnFunc) {
	for _, p := range r.Per {
		switch {
		case forgeable(p.Entry):
			warn(CodeForgeable, "it counts by %q, a header that any client can set to a new address for each request; count by \"ip\", which is an address that has been seen", p.Entry)
		case p.address() && (p.Bits6 == 0 || p.Bits6 > 64):
			warn(CodeForgeable, "it counts by whole IPv6 addresses in %q, of which one customer usually has 2^64 to choose from; write %s/64", p.Entry, p.withoutBits6())
		}
	}
}

// withoutBits6 is the part as far as it is written before the IPv6 length.
func (p Part) withoutBits6() string {
	p.Bits6 = 64
	text := p.String()
	return strings.TrimSuffix(text, "/64")
}
