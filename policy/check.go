package policy

import (
	"github.com/headgate/headgate"
)

// AppendCheck appends to dst the check that [Set.Check] returns. While the hash key is being
// changed, it also appends the check under the old key; see [OldHashKey]. The errors are those of
// Check; dst is then returned as it was given.
func (s *Set) AppendCheck(dst []headgate.Check, name, key string, cost int64) ([]headgate.Check, error) {
	c, err := s.Check(name, key, cost)
	if err != nil {
		return dst, err
	}
	dst = append(dst, c)
	i := s.names[name]
	if r := &s.compiled[i]; r.secret && s.old != nil {
		d, err := s.keyDescriptor(i, key)
		if err != nil {
			return dst[:len(dst)-1], err
		}
		if old, ok := s.oldCheck(r, d, &c); ok {
			dst = append(dst, old)
		}
	}
	return dst, nil
}

// Check returns the check for the named rule and key, without looking at the rule's conditions. The
// key has the values that Decide would read from a descriptor. For a rule that counts by one entry,
// it is the entry's value. For a rule that counts by several, it is their values joined by "|",
// with "|" and "\" in them escaped by "\". For a rule with one counter for all, it is "". Check
// then hashes the values, or cuts them to a network, as Decide does. For a direct rule the key is
// used as it is.
//
// Tariff, overrides and costs know only those entries of the request that are in the key, and those
// that the table of subjects has for them. Allow and deny lists are not searched.
//
// The error is an [*UnknownRuleError], or a [*headgate.InvalidError] if the rule cannot have that
// key or cost.
func (s *Set) Check(name, key string, cost int64) (headgate.Check, error) {
	i, ok := s.names[name]
	if !ok {
		return headgate.Check{}, s.unknown(name)
	}
	r := &s.compiled[i]
	invalid := func(field, format string, args ...any) (headgate.Check, error) {
		return headgate.Check{}, r.invalid(field, format, args...)
	}
	if cost < 0 || cost > headgate.MaxCount {
		return invalid("cost", "the cost is %d, must be 1 to %d", cost, headgate.MaxCount)
	}
	if r.limits == nil {
		return invalid("", "it has no limits, only in_progress, so there is nothing to check; acquire a permit instead")
	}
	d, err := s.keyDescriptor(i, key)
	if err != nil {
		return headgate.Check{}, err
	}
	c, binds, err := s.check(r, d, cost)
	switch {
	case err != nil:
		return headgate.Check{}, err
	case binds && s.rules[i].Direct:
		c.Key = key
		c.Shadow = r.more != nil && !enforced(name, key, r.more.percent)
		return c, nil
	case binds:
		return c, nil
	}
	if r.more != nil && s.limits(r, d) == nil {
		return invalid("", "it has limits by %q, and none for a key of which that is not known; give it limits for all others, \"*\", or ask by descriptor", r.more.tariff.entry)
	}
	if factor, err := r.costs(d); err == nil && factor == 0 {
		return invalid("", "a request of which no %q is known costs it nothing; ask by descriptor", r.more.costs.Entry)
	}
	// The key may hold a secret, so it is not repeated.
	return invalid("key", "the key has %d bytes, but the rule binds no request without %s", len(key), r.partNames())
}

// keyDescriptor takes a key apart into the entries of the request that it holds, and adds those
// that the table of subjects has for the client.
func (s *Set) keyDescriptor(i int32, key string) (Descriptor, error) {
	r := &s.compiled[i]
	switch {
	case s.rules[i].Direct:
		if len(key) > headgate.MaxKey {
			return nil, r.invalid("key", "the key has %d bytes, must have at most %d", len(key), headgate.MaxKey)
		}
		return nil, nil
	case len(r.parts) == 0 && key != "":
		return nil, r.invalid("key", "the key must be empty: the rule has one counter for all requests")
	case len(r.parts) == 0:
		return s.known(nil), nil
	}
	values := []string{key}
	if len(r.parts) > 1 {
		var ok bool
		if values, ok = split(key, len(r.parts)); !ok {
			return nil, r.invalid("key", `the key has %d parts, must have %d joined by "|": %s`, len(values), len(r.parts), r.partNames())
		}
	}
	d := make(Descriptor, len(r.parts))
	for j := range r.parts {
		if len(values[j]) > MaxValue {
			return nil, r.invalid("key", "the key's %s has %d bytes, must have at most %d", r.parts[j].Entry, len(values[j]), MaxValue)
		}
		d[j] = Entry{r.parts[j].Entry, values[j]}
	}
	return s.known(d), nil
}

// known returns the descriptor together with the entries that the table has for its client.
func (s *Set) known(d Descriptor) Descriptor {
	if s.subjects == nil {
		return d
	}
	known := s.subjects.find(d)
	return append(known[:len(known):len(known)], d...)
}
