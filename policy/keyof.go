package policy

import (
	"net/netip"
	"slices"

	"github.com/headgate/headgate"
)

// Limits returns the limits that the named rule has for a descriptor, after overrides and tariff,
// and the number of the override, from 1, or zero. It does not look at the conditions of the rule.
// The limits are nil if the tariff has none for the tier, if the rule only bounds what is in
// progress, or if the set has no such rule.
//
// The descriptor may have only some of the entries that a request has. The row of the table of
// subjects for unknown clients then adds only entries that are missing.
//
// Hashed are secret entries whose hash is known and whose value is not: each has what [Set.Hash]
// returned, under the hash key in use. Overrides find them by hash and by value. The table of
// subjects finds them by hash only. Neither finds hashes that were made with a former hash key.
func (s *Set) Limits(rule string, d Descriptor, hashed ...Entry) (limits *headgate.Rule, override int) {
	i, ok := s.names[rule]
	if !ok {
		return nil, 0
	}
	r := &s.compiled[i]
	if r.more == nil {
		return r.limits, 0
	}
	d = s.knownOf(d, hashed)
	j, found := s.overrideOf(i, d, hashed)
	switch {
	case found && r.more.limits[j] != nil:
		return r.more.limits[j], j + 1
	case r.more.tariff != nil:
		return r.more.tariff.limits(d), 0
	}
	return r.limits, 0
}

// PermitLimit is how many permits there are for what the named rule counts by these entries,
// as Limits has its limits. It is zero if the rule does not bound what is in progress, or
// has no limit for the entries.
func (s *Set) PermitLimit(rule string, d Descriptor, hashed ...Entry) int64 {
	i, ok := s.names[rule]
	if !ok || s.rules[i].InProgress == nil {
		return 0
	}
	d = s.knownOf(d, hashed)
	if r := &s.compiled[i]; r.more != nil {
		if j, found := s.overrideOf(i, d, hashed); found && r.more.permits[j] != 0 {
			return r.more.permits[j]
		}
	}
	return s.rules[i].InProgress.limit(d)
}

// knownOf is known for a part of the entries of a request.
func (s *Set) knownOf(d Descriptor, hashed []Entry) Descriptor {
	if s.subjects == nil {
		return d
	}
	row, found := s.subjects.row(d, hashed)
	if !found {
		return append(d[:len(d):len(d)], row...)
	}
	return append(row[:len(row):len(row)], d...)
}

// overrideOf finds the first override of the i-th rule that holds.
func (s *Set) overrideOf(i int32, d Descriptor, hashed []Entry) (int, bool) {
	if len(hashed) == 0 {
		return s.compiled[i].more.overrides.find(d, s.now)
	}
	// The index needs values, so this looks at all overrides, which people do now and then.
	all := s.rules[i].Overrides
	for j := range all {
		fails := func(c Condition) bool { return !s.holds(&c, d, hashed) }
		if !slices.ContainsFunc(all[j].Match, fails) && !ended(all[j].Until, s.now) {
			return j, true
		}
	}
	return 0, false
}

// holds reports whether a condition holds. Beginnings of a hashed value are not known.
func (s *Set) holds(c *Condition, d Descriptor, hashed []Entry) bool {
	for _, e := range hashed {
		if e.Name == c.Entry {
			is := func(value string) bool { return s.Hash(e.Name, value) == e.Value }
			return (c.Size() == 0 || slices.Contains(c.Hashes, e.Value) || slices.ContainsFunc(c.Equals, is)) != c.Not
		}
	}
	one := c.compiled(s.hasher)
	return one.holds(d)
}

// KeyMatch returns conditions that hold for exactly those requests that the named rule counts under
// the key: for each entry of its Per the value, the network or the hash. It reports false if the
// key does not tell: the rule has one counter for all, or takes any key; the key is not one of the
// rule; or the key was too long for a store and was replaced by a hash.
func (s *Set) KeyMatch(rule, key string) ([]Condition, bool) {
	i, ok := s.names[rule]
	if !ok || key == "" || key[0] == shortened {
		return nil, false
	}
	r := &s.compiled[i]
	values := []string{key}
	if len(r.parts) != 1 {
		if values, ok = split(key, len(r.parts)); !ok || len(r.parts) == 0 {
			return nil, false
		}
	}
	all := make([]Condition, len(values))
	for j, value := range values {
		p := &r.parts[j]
		network, err := netip.ParsePrefix(value)
		switch {
		case value == "":
			return nil, false
		case p.secret && (p.Bits4 != 0 || p.Bits6 != 0):
			return nil, false // A hash of the network, which conditions do not know.
		case p.secret:
			all[j] = Hashed(p.Entry, value)
		case p.address && err == nil:
			all[j] = Network(p.Entry, network)
		default:
			all[j] = Condition{Entry: p.Entry, Equals: []string{value}}
		}
	}
	return all, true
}
