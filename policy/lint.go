package policy

import (
	"fmt"
	"slices"
	"strings"
)

// The codes of warnings. They are stable: what a code stands for never changes.
const (
	// CodeNeverBinds marks a limit that denies nothing because another limit of
	// the same rule always denies first.
	CodeNeverBinds = "HG001"
	// CodeNeverMatches marks a rule whose conditions contradict each other.
	CodeNeverMatches = "HG002"
	// CodeNeverFits marks a limit that can hold less than the rule's cost, so
	// that the rule denies every request.
	CodeNeverFits = "HG003"
	// CodeUncaught marks a rule that does not bind requests without one of its
	// Per entries, when no other rule binds those.
	CodeUncaught = "HG004"
	// CodePlainHash marks the use of a secret entry in a set without a hash key.
	CodePlainHash = "HG005"
)

// Warning is something about a rule that is valid and yet unlikely to be meant.
type Warning struct {
	// Code says what kind of warning it is, such as "HG001".
	Code string
	// Rule is the rule's name.
	Rule string
	// Pos is where the rule was written.
	Pos Position
	// Text says what is wrong, with the numbers and what to do.
	Text string
}

// String writes the warning with its position, if it has one, its code and its
// rule.
func (w Warning) String() string {
	place := ""
	if w.Pos != (Position{}) {
		place = w.Pos.String() + ": "
	}
	return fmt.Sprintf("%s%s: rule %q: %s", place, w.Code, w.Rule, w.Text)
}

// Lint returns what is unlikely to be meant in the set's rules, in their order.
// Of limits it says only what is certain: a limit that it calls useless never
// denies a request that the rule's other limits admit.
func Lint(s *Set) []Warning {
	var warnings []Warning
	var catchers []*Rule
	for i := range s.rules {
		if r := &s.rules[i]; !r.Direct && contradiction(r) == "" {
			catchers = append(catchers, r)
		}
	}
	for i := range s.rules {
		r := &s.rules[i]
		warn := func(code, format string, args ...any) {
			warnings = append(warnings, Warning{code, r.Name, r.Pos, fmt.Sprintf(format, args...)})
		}
		lintLimits(r, warn)
		lintCost(r, warn)
		if why := contradiction(r); why != "" {
			warn(CodeNeverMatches, "it can never match: %s", why)
			continue
		}
		lintUncaught(r, catchers, warn)
	}
	if w, ok := s.lintSecrets(); ok {
		warnings = append(warnings, w)
	}
	slices.SortStableFunc(warnings, func(a, b Warning) int { return int(s.names[a.Rule] - s.names[b.Rule]) })
	return warnings
}

func lintCost(r *Rule, warn func(code, format string, args ...any)) {
	limits := r.Limits.Limits()
	for i := range limits {
		l := &limits[i]
		if l.Capacity() < r.factor() {
			warn(CodeNeverFits, "limit %q holds at most %d units but each request costs at least %d, so every request is denied; raise the limit or its burst to %d, or lower the cost",
				l, l.Capacity(), r.factor(), r.factor())
		}
	}
}

// lintSecrets warns once for the whole set: the remedy is one key.
func (s *Set) lintSecrets() (Warning, bool) {
	if s.hasher.keyed {
		return Warning{}, false
	}
	var entries []string
	first, rules := -1, 0
	for i := range s.compiled {
		uses := false
		for _, p := range s.compiled[i].parts {
			if p.secret {
				uses = true
				if !slices.Contains(entries, p.Entry) {
					entries = append(entries, p.Entry)
				}
			}
		}
		if uses {
			if first < 0 {
				first = i
			}
			rules++
		}
	}
	if rules == 0 {
		return Warning{}, false
	}
	r := &s.rules[first]
	return Warning{CodePlainHash, r.Name, r.Pos, fmt.Sprintf(
		"it counts by the secret %s (%d of %d rules do), hashed without a key: whoever reads the store can test guesses; set one hash key of at least %d bytes on all nodes",
		strings.Join(entries, ", "), rules, len(s.rules), MinHashKey)}, true
}
