package store

import (
	"fmt"

	"github.com/headgate/headgate"
)

// Validate returns a [*headgate.InvalidError] if no store could take the checks. Stores
// call it first, so that all of them refuse the same input with the same words.
func Validate(op headgate.Op, checks []headgate.Check) error {
	// The usual request is valid: nothing is formatted for it.
	if op > headgate.OpCharge || len(checks) == 0 || len(checks) > headgate.MaxChecks {
		return mistakes(op, checks)
	}
	for i := range checks {
		if c := &checks[i]; !valid(c.Rule, c.Key, c.Cost) || repeats(checks, i) >= 0 {
			return mistakes(op, checks)
		}
	}
	return nil
}

// ValidateSingle is [Validate] for [Single].
func ValidateSingle(rule *headgate.Rule, key string, cost int64) error {
	if ValidSingle(rule, key, cost) {
		return nil
	}
	return mistake(rule, key, cost)
}

// ValidSingle reports whether [ValidateSingle] returns no error. Unlike that, it is small enough to be
// inlined, for stores whose decisions take no longer than a few calls of functions.
func ValidSingle(rule *headgate.Rule, key string, cost int64) bool {
	return valid(rule, key, cost) && len(rule.Limits()) == 1
}

func mistake(rule *headgate.Rule, key string, cost int64) error {
	if err := mistakes(headgate.OpTake, []headgate.Check{{Rule: rule, Key: key, Cost: cost}}); err != nil {
		return err
	}
	return headgate.Invalid(fmt.Sprintf("rule %q", rule.Name()), "limits", "it has %d limits, TakeSingle needs one", len(rule.Limits()))
}

// valid reports whether a store could take a check.
func valid(rule *headgate.Rule, key string, cost int64) bool {
	return rule != nil && len(rule.Limits()) != 0 && len(key) <= headgate.MaxKey && cost >= 0 && cost <= headgate.MaxCount
}

// repeats returns the first check with the counters of check i, or -1.
func repeats(checks []headgate.Check, i int) int {
	c := &checks[i]
	for j := range checks[:i] {
		if o := &checks[j]; o.Rule != nil && o.Key == c.Key && o.Rule.Name() == c.Rule.Name() {
			return j
		}
	}
	return -1
}

// mistakes returns the [*headgate.InvalidError] with everything that is wrong with the
// operation and the checks.
func mistakes(op headgate.Op, checks []headgate.Check) error {
	var problems headgate.Problems
	if op > headgate.OpCharge {
		problems.Add("op", "operation %d is unknown", op)
	}
	if len(checks) == 0 || len(checks) > headgate.MaxChecks {
		problems.Add("checks", "there are %d checks, must be 1 to %d", len(checks), headgate.MaxChecks)
	}
	for i := range checks[:min(len(checks), headgate.MaxChecks)] {
		c := &checks[i]
		at := fmt.Sprintf("checks[%d]", i)
		name := ""
		if c.Rule == nil || len(c.Rule.Limits()) == 0 {
			problems.Add(at+".rule", "check %d has no rule; make one with NewRule", i+1)
		} else {
			name = " (" + c.Rule.Name() + ")"
		}
		if len(c.Key) > headgate.MaxKey {
			problems.Add(at+".key", "check %d%s: the key has %d bytes, must have at most %d", i+1, name, len(c.Key), headgate.MaxKey)
		}
		if c.Cost < 0 || c.Cost > headgate.MaxCount {
			problems.Add(at+".cost", "check %d%s: the cost is %d, must be 1 to %d", i+1, name, c.Cost, headgate.MaxCount)
		}
		if !valid(c.Rule, c.Key, c.Cost) {
			continue
		}
		if j := repeats(checks, i); j >= 0 {
			problems.Add(at, "check %d repeats the rule %q and the key of check %d; add up their costs instead", i+1, c.Rule.Name(), j+1)
		}
	}
	return problems.Err("request")
}

// ValidateOnce returns a [*headgate.InvalidError] if no ledger could take the checks
// under these terms.
func ValidateOnce(terms *headgate.Terms, checks []headgate.Check) error {
	if terms.ID == "" {
		return headgate.Invalid("request", "id", "it has no id to be remembered by")
	}
	if err := terms.Validate(); err != nil {
		return err
	}
	return Validate(headgate.OpTake, checks)
}

// ValidateSettle returns a [*headgate.InvalidError] if no ledger could settle the
// reservation at these units.
func ValidateSettle(r *headgate.Reservation, units []int64) error {
	var problems headgate.Problems
	if r.ID == "" || len(r.Checks) == 0 {
		problems.Add("id", "there is no reservation: the request was denied, or nothing bound it")
	}
	if len(units) != len(r.Checks) {
		problems.Add("units", "there are %d costs for %d checks", len(units), len(r.Checks))
	}
	limits := 0
	for i := range r.Checks {
		if r.Checks[i].Rule != nil {
			limits += len(r.Checks[i].Rule.Limits())
		}
	}
	if len(r.Used) != 0 && len(r.Used) != limits {
		problems.Add("used", "there are %d numbers of units in use for %d limits", len(r.Used), limits)
	}
	for i, n := range units {
		if n < 0 || n > headgate.MaxCount {
			problems.Add(fmt.Sprintf("units[%d]", i), "cost %d is %d, must be 0 to %d", i+1, n, headgate.MaxCount)
		}
	}
	if err := problems.Err("settlement"); err != nil {
		return err
	}
	return Validate(headgate.OpTake, r.Checks)
}
