package policy

import (
	"github.com/headgate/headgate"
)

// AppendCheck appends to dst the check that [Set.Check] returns and, while the hash
// key is being changed, the one under the old key: see [OldHashKey]. The error
// is that of Check, and the slice is then dst as it came.
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

// Check returns the check for the named rule, whatever it matches. The key has
// what Decide would read from the descriptor, and is treated alike: for a rule
// that counts by one entry, the entry's value; by several, their values joined
// by "|", with "|" and "\" in them escaped by "\"; for a rule with one counter
// for all, "". For a direct rule the key is used as it is.
//
// Tariff, overrides and costs know of the request what is in the key, and what
// the table of subjects has for that. Allow and deny lists are not asked.
//
// The error is an [*UnknownRuleError], or a [*headgate.InvalidError] if the key
// or the cost cannot be the rule's.
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

// keyDescriptor takes a key apart into what it says of the request, and adds
// what is known of the client.
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

// known returns the descriptor with what the table has of its client.
func (s *Set) known(d Descriptor) Descriptor {
	if s.subjects == nil {
		return d
	}
	known := s.subjects.find(d)
	return append(known[:len(known):len(known)], d...)
}
