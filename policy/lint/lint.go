// Package lint warns about parts of a policy that are valid and yet cannot do what they seem to
// say: a limit that never denies, a rule that no request reaches, a secret in the clear.
//
// # Basics
//
// [Warnings] returns the warnings about a [policy.Set], in the order of its rules. Each [Warning]
// has a stable code, such as "HG004" ([Uncaught]). [Codes] lists all codes. A policy.Ignore in a
// rule or in the set silences a warning and gives the reason. [All] returns the silenced warnings
// as well.
//
// # How it works
//
// Most checks look at one thing: the limits of a rule (limits.go), the rest of a rule (rule.go,
// inprogress.go), the lists and the table of subjects (clients.go), the names of entries
// (entries.go), what serves the routes (behind.go), and which rules replace each other in a circle (circles.go).
//
// Four checks compare rules with each other and with the lists (compare.go). With ten thousand
// rules, comparing each with all others would take too long. So lists of conditions are grouped by
// the values that they demand (group.go), and each list is compared only with those that the groups
// offer. Whether one list of conditions follows from another is decided condition by condition
// (condition.go).
//
// # Caveats
//
// There are no false alarms about limits: a limit that is said never to bind never denies a request
// that the others admit. But some limits that never bind have no warning.
//
// Comparing rules stops after about a second of work. A warning with the code [Unseen] says how
// many rules were not compared with all others.
package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
)

// Warning is about something in a policy that is valid but unlikely to be meant.
type Warning struct {
	// Code says what kind of warning it is, such as "HG001".
	Code string `json:"code"`
	// Rule is the name of the rule; empty if the warning is about a list, the table of
	// subjects or the whole policy.
	Rule string `json:"rule,omitempty"`
	// Pos is where the rule, the entry or the row is written.
	Pos policy.Position `json:"pos,omitzero"`
	// Text says what is wrong, with the numbers, and what to do.
	Text string `json:"text"`
	// Ignored is the reason why the policy silences the warning. It is empty if the policy does
	// not.
	Ignored string `json:"ignored,omitempty"`
}

// String returns the warning with its position, its code and its rule, as far as it has them.
func (w Warning) String() string {
	var b strings.Builder
	if w.Pos != (policy.Position{}) {
		fmt.Fprintf(&b, "%v: ", w.Pos)
	}
	b.WriteString(w.Code)
	if w.Rule != "" {
		fmt.Fprintf(&b, ": rule %q", w.Rule)
	}
	fmt.Fprintf(&b, ": %s", w.Text)
	return b.String()
}

// Warnings returns the warnings about the set, in the order of its rules. It leaves out those that
// the policy ignores.
func Warnings(s *policy.Set) []Warning {
	return slices.DeleteFunc(All(s), func(w Warning) bool { return w.Ignored != "" })
}

// All returns what [Warnings] returns, and the warnings that the policy ignores.
func All(s *policy.Set) []Warning {
	l := newLinter(s)
	l.lists()
	l.subjects()
	l.misspelt()
	l.behind()
	for i := range l.rules {
		l.rule(&l.rules[i])
	}
	l.compare()
	l.circles()
	l.plainHashes()
	l.silence()
	slices.SortStableFunc(l.warnings, func(a, b Warning) int { return cmp.Compare(l.place(a), l.place(b)) })
	return l.warnings
}

// linter collects warnings.
type linter struct {
	set      *policy.Set
	rules    []rule
	places   map[string]int // by name, the index of the rule
	tags     map[string]int // by tag, how many rules have it
	warnings []Warning
	budget   budget
}

// rule is a rule of the set, with what several checks need to know about it.
type rule struct {
	*policy.Rule
	place int
	// match has the rule's conditions. bound has, in addition, the conditions that the entries by
	// which the rule counts are present. All of bound holds for every request that the rule binds.
	match, bound []condition
	// never says why no request can meet the conditions. It is empty if no reason was found.
	never string
	// replaced says that another rule, or an entry of a list, may replace the rule.
	replaced bool
}

func newLinter(s *policy.Set) *linter {
	rules := s.Rules()
	l := &linter{
		set: s, rules: make([]rule, len(rules)), places: make(map[string]int, len(rules)), tags: make(map[string]int),
		budget: budget{unseen: make([]bool, len(rules))},
	}
	replaced := make(map[string]bool)
	for i := range rules {
		l.places[rules[i].Name] = i
		l.tags[rules[i].Limits.Tag()]++
		for _, name := range rules[i].Replaces {
			replaced[name] = true
		}
	}
	for _, list := range [][]policy.ListEntry{s.Denied(), s.Allowed()} {
		for i := range list {
			for _, name := range list[i].Replaces {
				replaced[name] = true
			}
		}
	}
	for i := range rules {
		r := rule{Rule: &rules[i], place: i, match: newConditions(rules[i].Match), replaced: replaced[rules[i].Name]}
		r.bound = r.match[:len(r.match):len(r.match)]
		for _, p := range r.Per {
			r.bound = append(r.bound, present(p.Entry))
		}
		r.never = contradiction(r.match, r.Per, s.Secret)
		l.rules[i] = r
	}
	return l
}

// warnFunc adds a warning. What the warning is about was chosen when the function was made.
type warnFunc func(code, format string, args ...any)

// about returns a function that adds warnings about the named rule. If the name is empty, they are
// about what is written at pos.
func (l *linter) about(name string, pos policy.Position) warnFunc {
	return func(code, format string, args ...any) {
		l.warnings = append(l.warnings, Warning{Code: code, Rule: name, Pos: pos, Text: fmt.Sprintf(format, args...)})
	}
}

// aboutRule returns a function that adds warnings about the rule, at its position.
func (l *linter) aboutRule(r *rule) warnFunc { return l.about(r.Name, r.Pos) }

// aboutField returns a function that adds warnings about the rule, at the position of a field. The
// field is named as in policy.Mistake.
func (l *linter) aboutField(r *rule, field string) warnFunc { return l.about(r.Name, r.At(field)) }

// place returns the index of the warning's rule, by which warnings are sorted. It is -1 if the
// warning is not about a rule.
func (l *linter) place(w Warning) int {
	if i, ok := l.places[w.Rule]; ok {
		return i
	}
	return -1
}

// silence marks the warnings that the policy ignores, and warns of each Ignore that silences
// nothing.
func (l *linter) silence() {
	all := make([]int, len(l.warnings))
	byRule := make(map[string][]int)
	for i := range l.warnings {
		all[i] = i
		byRule[l.warnings[i].Rule] = append(byRule[l.warnings[i].Rule], i)
	}
	apply := func(ignored []policy.Ignore, what string, to []int, warn warnFunc) {
		for _, one := range ignored {
			used := false
			for _, i := range to {
				if w := &l.warnings[i]; w.Code == one.Code {
					used = true
					w.Ignored = one.Reason
				}
			}
			if !used && !l.budget.mayLack(one.Code) {
				warn(IdleIgnore, "%s ignores %s, but there is no such warning; leave it out", what, one.Code)
			}
		}
	}
	apply(l.set.Ignored(), "the policy", all, l.about("", policy.Position{}))
	for i := range l.rules {
		r := &l.rules[i]
		apply(r.Ignore, "it", byRule[r.Name], l.aboutRule(r))
	}
}
