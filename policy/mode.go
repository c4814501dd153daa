package policy

import (
	"fmt"

	"github.com/headgate/headgate"
)

// Mode says whether a rule may deny. The zero Mode is ModeEnforce.
type Mode uint8

const (
	// ModeEnforce lets the rule deny.
	ModeEnforce Mode = iota
	// ModeShadow has the rule count what it would have admitted and never deny.
	ModeShadow
	// ModeQuota is ModeShadow, but that callers are told when the rule would have
	// denied, so that they can act on it: Envoy as it is by envoyproxy/ratelimit. Envoy is
	// told no if all descriptors of a request that have a quota are beyond it.
	ModeQuota

	modes // the number of modes
)

var modeNames = [modes]string{"enforce", "shadow", "quota"}

// String returns the mode as it is written in rules.
func (m Mode) String() string {
	if m < modes {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Enforced is the rule's Enforce with its default and its Mode applied: for how
// many of 100 keys it may deny.
func (r *Rule) Enforced() int {
	switch {
	case r.Mode == ModeShadow, r.Mode == ModeQuota:
		return 0
	case r.Enforce == 0:
		return 100
	}
	return r.Enforce
}

// enforced reports whether a rule that is enforced for so many percent of its
// keys is enforced for this one. The choice is the same on every node and after
// every restart, and whoever is chosen stays chosen when the percentage grows.
func enforced(rule, key string, percent int) bool {
	if percent >= 100 {
		return true
	}
	// FNV-1a, and then a finalizer that spreads it over all bits.
	h := uint64(14695981039346656037)
	for i := range len(rule) {
		h = (h ^ uint64(rule[i])) * 1099511628211
	}
	h *= 1099511628211
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return (h>>32)*100>>32 < uint64(percent)
}

// softReached reports whether the decision leaves so much used that the rule
// warns.
func (r *Rule) softReached(d *headgate.Decision) bool {
	if r.Soft == 0 || d.Limit == nil {
		return false
	}
	capacity := d.Limit.Capacity()
	return (capacity-d.Remaining)*100 >= capacity*int64(r.Soft)
}

// Warns reports whether some rule of the set has Soft, so that it is worth asking
// for each decision.
func (s *Set) Warns() bool { return s.warns }

// Soft reports whether the limit of the decision has reached the percentage at
// which its rule is to warn. It is false for rules that are not of the set.
func (s *Set) Soft(d *headgate.Decision) bool {
	if !s.warns || d.Rule == nil {
		return false
	}
	r := s.Rule(d.Rule.Name())
	return r != nil && r.softReached(d)
}
