package policy

import (
	"fmt"

	"github.com/headgate/headgate"
)

// Outcome is what a policy says of a request, before any counter is looked at.
type Outcome struct {
	// Checks is the slice that was handed in, with a check appended for each
	// rule that binds the request: none if a list has answered.
	Checks []headgate.Check
	// Bounds are the bounds on what is in progress that bind the request: those of
	// each rule with InProgress. Whoever does not know when the request ends cannot
	// keep them, and says so.
	Bounds []Bound
	// Denied is the entry of the deny list that denies the request, or nil. The
	// store need not be asked.
	Denied *ListEntry
	// Allowed is the entry of the allow list that lets the request pass
	// whatever the rules say, or nil.
	Allowed *ListEntry
}

// Decide says what binds the request: an entry of the deny list, else one of the
// allow list, else all rules that match and that no other of them replaces, whose
// checks it appends to dst in the order of the rules. Cost is the request's own, 1 to headgate.MaxCount; zero
// means one. What it comes to under a rule is headgate.MaxCount at most, which no smaller limit can hold.
//
// The error is a [*headgate.InvalidError], and the checks are then dst as it
// came: the cost is out of bounds, an entry that a cost is measured by is no
// whole number, or more than headgate.MaxChecks rules bind.
//
// Decide allocates for keys only: joined ones, hashed ones, and addresses that
// are cut or spelled otherwise.
func (s *Set) Decide(d Descriptor, cost int64, dst []headgate.Check) (Outcome, error) {
	out, err := s.bind(d, cost, dst, true)
	if err == nil {
		s.dropReplaced(&out, len(dst))
	}
	return out, err
}

// Bind is Decide for one of several descriptors of a request: rules that others
// replace are still among the checks. Once those of all descriptors are known,
// [Set.Replaced] says which of them do not count.
//
// Where a cost is measured by an entry that is no whole number, the request has the
// highest cost, and there is no error: whoever asks by several descriptors is a proxy,
// which lets requests pass that cannot be decided.
func (s *Set) Bind(d Descriptor, cost int64, dst []headgate.Check) (Outcome, error) {
	return s.bind(d, cost, dst, false)
}

// bind is Bind; strict says that an entry which cannot be measured is an error.
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

// check returns the check by which a rule whose conditions hold binds the
// request, if it does. The error is that of an entry which cannot be measured, and
// the check then has the highest cost.
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

// oldCheck returns, while the hash key is being changed, the check of the same rule
// under the key that nodes count by which have not changed yet.
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

// limits returns what binds the request after tariff and overrides, or nil.
func (s *Set) limits(r *compiled, d Descriptor) *headgate.Rule {
	if i, found := r.more.overrides.find(d, s.now); found && r.more.limits[i] != nil {
		return r.more.limits[i]
	}
	if r.more.tariff != nil {
		return r.more.tariff.limits(d)
	}
	return r.limits
}

// costs is what the request's own cost is multiplied by under the rule: the highest
// cost, with an error, if an entry cannot be measured.
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

// Match is [Set.Decide] for callers that want checks only and keep no bounds on what is
// in progress: it returns dst with a check for
// each rule that binds the request, and none if the allow list lets the request pass. If the
// deny list denies the request, the error is a [*headgate.DeniedError] with the entry's name
// in its Reason; no time to wait helps.
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
