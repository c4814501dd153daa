package policy

import (
	"fmt"

	"github.com/headgate/headgate"
)

// MaxTiers is how many tiers one [Tariff] may have.
const MaxTiers = 1000

// Tariff has limits by the value of one entry. All of them are made for the rule's name, so that a
// client who changes tiers keeps what it has used.
type Tariff struct {
	// Entry is the entry's name, such as "tier". Required.
	Entry string
	// Tiers are the values that have limits of their own: 1 to MaxTiers, or none
	// if there is Other.
	Tiers []Tier
	// Other are the limits for every other value and for requests without the entry. If it is nil,
	// the rule does not bind such requests.
	Other *headgate.Rule
}

// Tier is one value of a tariff's entry, and its limits.
type Tier struct {
	Value  string
	Limits *headgate.Rule
}

func (t *Tariff) clone() *Tariff {
	if t == nil {
		return nil
	}
	c := *t
	c.Tiers = append([]Tier(nil), t.Tiers...)
	return &c
}

// first returns some limits of the tariff: Other, if there is one.
func (t *Tariff) first() *headgate.Rule {
	if t.Other != nil || len(t.Tiers) == 0 {
		return t.Other
	}
	return t.Tiers[0].Limits
}

// has reports whether the limits belong to the tariff.
func (t *Tariff) has(limits *headgate.Rule) bool {
	if limits == t.Other {
		return true
	}
	for i := range t.Tiers {
		if t.Tiers[i].Limits == limits {
			return true
		}
	}
	return false
}

// knows reports whether the tariff has limits for exactly this value.
func (t *Tariff) knows(value string) bool {
	for i := range t.Tiers {
		if t.Tiers[i].Value == value {
			return true
		}
	}
	return false
}

// Tier returns the tier by which the named rule binds a request, whether or not an override
// applies. It is "*" if the limits for all other values apply, and "" if the rule has no tariff or
// is not in the set. For a secret entry it is a hash.
func (s *Set) Tier(rule string, d Descriptor) string {
	i, ok := s.names[rule]
	if !ok || s.rules[i].Tariff == nil {
		return ""
	}
	return s.tier(s.rules[i].Tariff, s.known(d))
}

// tier is Tier for a descriptor that has the table's entries.
func (s *Set) tier(t *Tariff, d Descriptor) string {
	value, ok := d.Get(t.Entry)
	switch {
	case !ok || !t.knows(value):
		return "*"
	case s.secret(t.Entry):
		return s.Hash(t.Entry, value)
	}
	return value
}

func (t *Tariff) check(name string, bad func(field, format string, args ...any)) {
	if p := checkEntryName(t.Entry); p != "" {
		bad("tariff", "%s", p)
	}
	if n := len(t.Tiers); n > MaxTiers || n == 0 && t.Other == nil {
		bad("tariff", "the tariff has %d tiers, must have 1 to %d", n, MaxTiers)
	}
	if t.Other != nil && t.Other.Name() != name {
		bad("tariff", "the name is %q but the other limits were made for %q; counters can be kept under one name only", name, t.Other.Name())
	}
	seen := make(map[string]bool, len(t.Tiers))
	for i := range t.Tiers {
		tier, field := &t.Tiers[i], fmt.Sprintf("tariff.%d", i)
		switch {
		case tier.Value == "" || len(tier.Value) > MaxValue:
			bad(field, "the tier %s has %d bytes, must have 1 to %d", Quote(tier.Value), len(tier.Value), MaxValue)
		case seen[tier.Value]:
			bad(field, "the tier %s is set twice; keep one", Quote(tier.Value))
		}
		seen[tier.Value] = true
		switch {
		case tier.Limits == nil:
			bad(field, "the tier %s has no limits; make them with headgate.NewRule", Quote(tier.Value))
		case tier.Limits.Name() != name:
			bad(field, "the name is %q but the limits of the tier %s were made for %q; counters can be kept under one name only", name, Quote(tier.Value), tier.Limits.Name())
		}
	}
}

// compiledTariff finds a tier without comparing with all others.
type compiledTariff struct {
	entry string
	tiers map[string]*headgate.Rule
	other *headgate.Rule
}

func (t *Tariff) compile() *compiledTariff {
	if t == nil {
		return nil
	}
	c := &compiledTariff{entry: t.Entry, tiers: make(map[string]*headgate.Rule, len(t.Tiers)), other: t.Other}
	for i := range t.Tiers {
		c.tiers[t.Tiers[i].Value] = t.Tiers[i].Limits
	}
	return c
}

// limits returns the limits for the request, or nil.
func (c *compiledTariff) limits(d Descriptor) *headgate.Rule {
	if value, ok := d.Get(c.entry); ok {
		if limits, ok := c.tiers[value]; ok {
			return limits
		}
	}
	return c.other
}
