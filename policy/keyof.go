package policy

import (
	"net/netip"

	"github.com/headgate/headgate"
)

// Limits returns the limits by which the named rule counts what has these entries, after
// overrides and tariff, and the number of the override, from 1, or zero. It does not look at the
// conditions of the rule. There are none if the tariff has none for the tier, if the rule
// bounds only what is in progress, or if it is not of the set.
func (s *Set) Limits(rule string, d Descriptor) (limits *headgate.Rule, override int) {
	i, ok := s.names[rule]
	if !ok {
		return nil, 0
	}
	r := &s.compiled[i]
	if r.more == nil {
		return r.limits, 0
	}
	d = s.known(d)
	if j, found := r.more.overrides.find(d, s.now); found && r.more.limits[j] != nil {
		return r.more.limits[j], j + 1
	}
	return s.limits(r, d), 0
}

// KeyMatch returns conditions that hold for what the named rule counts under the key, and for
// nothing else that it counts: of each entry of its per, the value, the network or the hash. It
// reports false if the key does not say: the rule has one counter for all or takes any key, the
// key is of another rule, or it was too long for a store and is a hash as a whole.
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
