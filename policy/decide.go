package policy

import (
	"fmt"

	"github.com/headgate/headgate"
)

// Outcome is what a policy says about a request, before any counter is read.
type Outcome struct {
	// Checks is the slice that was passed in, with a check appended for each rule that binds the
	// request. If a list has answered the request, there are none.
	Checks []headgate.Check
	// Bounds are the bounds on what is in progress, one for each rule with InProgress that binds
	// the request. A caller that does not know when the request ends cannot enforce them, and tells
	// its client so; see [Unenforced].
	Bounds []Bound
	// Denied is the entry of the deny list that denies the request, or nil. The
	// store need not be asked.
	Denied *ListEntry
	// Allowed is the entry of the allow list that admits the request, whatever the rules say, or
	// nil.
	Allowed *ListEntry
}

// Decide finds what binds the request. An entry of the deny list answers first, then one of the
// allow list. Otherwise all rules bind that match and that no other of them replaces; their checks
// are appended to dst, in the order of the rules. Cost is the request's own cost, 1 to
// headgate.MaxCount; zero means one. A check's cost is at most headgate.MaxCount.
//
// The error is a [*headgate.InvalidError] if the cost is out of bounds, if a cost is measured by an
// entry that is not a whole number, or if more than headgate.MaxChecks rules bind. The checks are
// then dst as it was given.
//
// Decide allocates only for keys that are joined from several values, hashed, or made from an
// address that has to be cut or spelled differently.
func (s *Set) Decide(d Descriptor, cost int64, dst []headgate.Check) (Outcome, error) {
	out, err := s.bind(d, cost, dst, true)
	if err == nil {
		s.dropReplaced(&out, len(dst))
	}
	return out, err
}

// Bind is Decide for one of several descriptors of a request. Rules that others replace are still
// among the checks. Once the checks for all descriptors are known, [Set.Replaced] says which of
// them do not count.
//
// If a cost is measured by an entry that is not a whole number, the request has the highest cost,
// and there is no error. A caller with several descriptors is a proxy, and proxies may admit
// requests for which they get an error.
func (s *Set) Bind(d Descriptor, cost int64, dst []headgate.Check) (Outcome, error) {
	return s.bind(d, cost, dst, false)
}

// bind is Bind. With strict, an entry that cannot be measured is an error.
func (s *Set) bind(d Descriptor, cost int64, dst []headgate.Check, strict bool) (Outcome, error) {
	if s.subjects != nil {
		if known := s.subjects.find(d); len(known) > 0 {
			// Of two entries with one name the first counts.
			var space [2 * MaxEntries]Entry
			return s.decide(append(append(space[:0], known...), d...), cost, dst, strict)
		}
	}
	return s.decide(d, cost, dst, strict)
}

// decide is Decide for a descriptor that has the table's entries.
func (s *Set) decide(d Descriptor, cost int64, dst []headgate.Check, strict bool) (Outcome, error) {
	out := Outcome{Checks: dst}
	if cost < 0 || cost > headgate.MaxCount {
		return out, costError("request", cost)
	}
	if i, found := s.deny.find(d, s.now); found {
		out.Denied = &s.options.deny[i]
		return out, nil
	}
	if i, found := s.allow.find(d, s.now); found {
		out.Allowed = &s.options.allow[i]
		return out, nil
	}
	var rules candidates
	s.index.candidates(d, &rules)
	for i, more := rules.next(); more; i, more = rules.next() {
		r := &s.compiled[i]
		if !holdAll(r.conditions, d) {
			continue
		}
		if r.inProgress != nil {
			var err error
			if out.Bounds, err = s.appendBounds(out.Bounds, i, d, cost); err != nil && strict {
				return Outcome{Checks: dst}, err
			}
		}
		check, binds, err := s.check(r, d, cost)
		switch {
		case err != nil && strict:
			return Outcome{Checks: dst}, err
		case !binds:
			continue
		}
		out.Checks = append(out.Checks, check)
		if old, ok := s.oldCheck(r, d, &check); ok {
			out.Checks = append(out.Checks, old)
		}
		if max(len(out.Checks)-len(dst), len(out.Bounds)) > headgate.MaxChecks {
			return Outcome{Checks: dst}, headgate.Invalid("request", "", "more than %d rules bind it; narrow what they match", headgate.MaxChecks)
		}
	}
	return out, nil
}

// check returns the check by which a rule binds the request, if it does. The conditions of the rule
// are known to hold. The error says that an entry cannot be measured; the check then has the
// highest cost.
func (s *Set) check(r *compiled, d Descriptor, cost int64) (c headgate.Check, binds bool, err error) {
	limits := r.limits
	if r.more != nil {
		limits = s.limits(r, d)
	}
	if limits == nil {
		return c, false, nil
	}
	key, ok := r.key(d, s.hasher)
	if !ok {
		return c, false, nil
	}
	factor, err := r.costs(d)
	if factor == 0 {
		return c, false, nil
	}
	// Neither exceeds MaxCount, so that the product fits.
	units := min(max(cost, 1)*factor, headgate.MaxCount)
	c = headgate.Check{Rule: limits, Key: key, Cost: units, Factor: factor, GiveBack: r.giveBack, Hints: headgate.Hints{OnError: r.onError, Consistency: r.consistency, DenyCache: r.denyCache}}
	if r.more != nil {
		c.Shadow = !enforced(r.name, key, r.more.percent)
	}
	return c, true, err
}

// oldCheck returns the check of the same rule under the old hash key, while the hash key is being
// changed. Nodes that do not know the new key yet count under the old one.
func (s *Set) oldCheck(r *compiled, d Descriptor, c *headgate.Check) (old headgate.Check, ok bool) {
	if !r.secret || s.old == nil {
		return old, false
	}
	old = *c
	if old.Key, ok = r.key(d, s.old); !ok {
		return old, false
	}
	if r.more != nil {
		old.Shadow = !enforced(c.Rule.Name(), old.Key, r.more.percent)
	}
	return old, true
}

// limits returns the limits for the request, by overrides and tariff, or nil if the rule has none
// for it.
func (s *Set) limits(r *compiled, d Descriptor) *headgate.Rule {
	if i, found := r.more.overrides.find(d, s.now); found && r.more.limits[i] != nil {
		return r.more.limits[i]
	}
	if r.more.tariff != nil {
		return r.more.tariff.limits(d)
	}
	return r.limits
}

// costs is the factor by which the rule multiplies the request's own cost. If an entry cannot be
// measured, it returns the highest cost and an error.
func (r *compiled) costs(d Descriptor) (int64, error) {
	if r.more == nil || r.more.costs == nil {
		return r.factor, nil
	}
	factor, problem := r.more.costs.of(d)
	if problem != "" {
		return factor, r.invalid("cost", "%s", problem)
	}
	return factor, nil
}

func (r *compiled) invalid(field, format string, args ...any) error {
	return headgate.Invalid(fmt.Sprintf("rule %q", r.name), field, format, args...)
}

func costError(subject string, cost int64) error {
	return headgate.Invalid(subject, "cost", "the cost is %d, must be 1 to %d", cost, headgate.MaxCount)
}

// Match is [Set.Decide] for callers that want only checks. It returns dst with a check appended for
// each rule that binds the request, and with none if the allow list admits the request. If the deny
// list denies the request, the error is a [*headgate.DeniedError] with the entry's name in its
// Reason; waiting does not help then.
func (s *Set) Match(d Descriptor, cost int64, dst []headgate.Check) ([]headgate.Check, error) {
	out, err := s.Decide(d, cost, dst)
	if err == nil && out.Denied != nil {
		err = &headgate.DeniedError{
			Decision: headgate.Decision{RetryAfter: headgate.Never},
			Reason:   fmt.Sprintf("the entry %q of the deny list denies the request", out.Denied.Name),
		}
	}
	return out.Checks, err
}
