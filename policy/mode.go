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
	// ModeShadow makes the rule count exactly as if it were enforced, and never deny.
	ModeShadow
	// ModeQuota is ModeShadow, except that callers are told when the rule would have denied. Envoy
	// is told as envoyproxy/ratelimit tells it, and gets a denial if all descriptors of a request
	// that have a quota exceed it.
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

// Enforced is the percentage of keys for which the rule may deny: Enforce with its default and Mode
// applied.
func (r *Rule) Enforced() int {
	switch {
	case r.Mode == ModeShadow, r.Mode == ModeQuota:
		return 0
	case r.Enforce == 0:
		return 100
	}
	return r.Enforce
}

// enforced reports whether a rule that is enforced for a percentage of its keys is enforced for
// this key. The choice is the same on every node and after every restart. A key that is chosen
// stays chosen when the percentage grows.
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

// softReached reports whether so much of the limit is used that the rule warns.
func (r *Rule) softReached(d *headgate.Decision) bool {
	if r.Soft == 0 || d.Limit == nil {
		return false
	}
	capacity := d.Limit.Capacity()
	return (capacity-d.Remaining)*100 >= capacity*int64(r.Soft)
}

// Warns reports whether some rule of the set has Soft. If not, there is no need to call Soft for
// each decision.
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
