package policy

import (
	"cmp"
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
	// CodeNeverFits marks a limit that can hold less than what a request costs,
	// so that the rule denies every such request.
	CodeNeverFits = "HG003"
	// CodeUncaught marks a rule that does not bind requests without one of its
	// Per entries, when no other rule binds those.
	CodeUncaught = "HG004"
	// CodePlainHash marks the use of a secret entry in a set without a hash key.
	CodePlainHash = "HG005"
	// CodeUnreachable marks a rule whose requests are all answered by the deny
	// list or the allow list.
	CodeUnreachable = "HG006"
	// CodeShadowed marks a limit that denies nothing because another rule, which
	// counts the same requests, always denies first.
	CodeShadowed = "HG007"
	// CodeTwice marks a rule that has the key and the limits of another one, and
	// counts some of its requests a second time.
	CodeTwice = "HG008"
	// CodeOpenTariff marks a tariff that has no limits for other tiers.
	CodeOpenTariff = "HG009"
	// CodeUnknownTier marks a tier in the table of subjects that no rule has
	// limits for.
	CodeUnknownTier = "HG010"
	// CodeEnded marks an override or an entry of a list that has ended.
	CodeEnded = "HG011"
	// CodeForgeable marks a limit by an address that a client can choose.
	CodeForgeable = "HG012"
	// CodeClearSecret marks a secret that stands in the policy in the clear.
	CodeClearSecret = "HG013"
	// CodeIdleIgnore marks an Ignore that silences nothing.
	CodeIdleIgnore = "HG014"
	// CodeOneNode marks a rule by many keys whose tag keeps all its counters on one
	// node of a cluster.
	CodeOneNode = "HG015"
	// CodeCircle marks rules and entries of the deny list that replace each other,
	// so that a request which meets them all meets none.
	CodeCircle = "HG016"
	// CodeUnseen marks the first of the rules that have not been compared with all
	// others, because that would take too long.
	CodeUnseen = "HG017"
)

// Code is a kind of warning.
type Code struct {
	Code string `json:"code"`
	// About says in a sentence what the warning is of.
	About string `json:"about"`
}

// Codes returns all kinds of warnings, in the order of their codes.
func Codes() []Code {
	return []Code{
		{CodeNeverBinds, "A limit never denies, because another limit of the rule always denies first."},
		{CodeNeverMatches, "A rule never matches, because its conditions contradict each other."},
		{CodeNeverFits, "A limit holds less than a request costs, so that the rule denies every such request."},
		{CodeUncaught, "A rule does not bind requests without an entry that it counts by, and no other rule does."},
		{CodePlainHash, "A rule counts by a secret that is hashed without a key."},
		{CodeUnreachable, "A rule is never reached, because the deny list or the allow list answers first."},
		{CodeShadowed, "A limit never denies, because another rule always denies first."},
		{CodeTwice, "A rule counts, by the same key and limits, what another rule counts."},
		{CodeOpenTariff, "A tariff has no limits for other tiers, so that the rule does not bind those."},
		{CodeUnknownTier, "The table of subjects has a tier that no rule has limits for."},
		{CodeEnded, "An override, or an entry of a list, has ended."},
		{CodeForgeable, "A rule goes by an address that a client can choose."},
		{CodeClearSecret, "A secret stands in the policy in the clear."},
		{CodeIdleIgnore, "A warning is ignored that there is not."},
		{CodeOneNode, "A rule by many keys has a tag, so that a cluster keeps all its counters on one node."},
		{CodeCircle, "Rules or entries of the deny list replace each other in a circle, so that none of them holds."},
		{CodeUnseen, "A rule has not been compared with all others, because there are too many that it may have to do with."},
	}
}

// Warning is something in a policy that is valid and yet unlikely to be meant.
type Warning struct {
	// Code says what kind of warning it is, such as "HG001".
	Code string `json:"code"`
	// Rule is the rule's name; empty if the warning is of a list, the table of
	// subjects or the whole.
	Rule string `json:"rule,omitempty"`
	// Pos is where that was written.
	Pos Position `json:"pos,omitzero"`
	// Text says what is wrong, with the numbers and what to do.
	Text string `json:"text"`
	// Ignored is the reason for which the warning is silenced; empty if it is
	// not.
	Ignored string `json:"ignored,omitempty"`
}

// String writes the warning with its position, its code and its rule, as far as
// it has them.
func (w Warning) String() string {
	var b strings.Builder
	if w.Pos != (Position{}) {
		fmt.Fprintf(&b, "%v: ", w.Pos)
	}
	b.WriteString(w.Code)
	if w.Rule != "" {
		fmt.Fprintf(&b, ": rule %q", w.Rule)
	}
	fmt.Fprintf(&b, ": %s", w.Text)
	return b.String()
}

// Lint returns what is unlikely to be meant in the set, in the order of its
// rules, without what is silenced. Of limits it says only what is certain: one
// that it calls useless never denies a request that others admit.
func Lint(s *Set) []Warning {
	return slices.DeleteFunc(LintAll(s), func(w Warning) bool { return w.Ignored != "" })
}

// LintAll is [Lint] with the warnings that are silenced.
func LintAll(s *Set) []Warning {
	l := linter{set: s, match: make([][]clause, len(s.rules)), unseen: make([]bool, len(s.rules))}
	for i := range s.rules {
		l.match[i] = newClauses(s.rules[i].Match)
	}
	l.catchers = newCoverers(l.match)
	l.lists()
	l.subjects()
	for i := range s.rules {
		l.rule(int32(i))
	}
	l.steps = 0
	l.overlaps()
	l.unseenRules()
	l.circles()
	l.secrets()
	l.silence()
	slices.SortStableFunc(l.warnings, func(a, b Warning) int { return cmp.Compare(l.order(a), l.order(b)) })
	return l.warnings
}

// linter collects warnings.
type linter struct {
	set      *Set
	match    [][]clause // of each rule
	catchers *coverers  // of all rules
	tags     map[string]int
	warnings []Warning

	steps  int    // that comparing rules has taken until now
	unseen []bool // of each rule: whether it was not compared with all others
}

// maxSteps is for how long rules are compared to find requests that none binds, and once
// more to find those that are in each other's way: about half a second. Policies that
// people write take a few steps for each rule.
const maxSteps = 10_000_000

// enough reports whether a rule is not to be compared further, because everything has
// taken long already, and these steps besides.
func (l *linter) enough(place, steps int) bool {
	l.steps += steps
	if l.steps > maxSteps {
		l.unseen[place] = true
	}
	return l.steps > maxSteps
}

// effort is about how many steps it takes to compare conditions with others.
func effort(a, b []clause) int { return 1 + len(a)*len(b) + min(values(a), values(b)) }

// values is how many values conditions have.
func values(list []clause) (n int) {
	for i := range list {
		n += len(list[i].values.list)
	}
	return n
}

// compared are the codes of warnings that come of comparing rules.
var compared = []string{CodeUncaught, CodeUnreachable, CodeShadowed, CodeTwice}

// unseenRules warns of what was not looked at.
func (l *linter) unseenRules() {
	first, others := slices.Index(l.unseen, true), -1
	if first < 0 {
		return
	}
	for _, unseen := range l.unseen {
		if unseen {
			others++
		}
	}
	r := &l.set.rules[first]
	l.about(r.Name, r.Pos)(CodeUnseen, "it has not been compared with all other rules, and neither have %d others: too many of them match requests that others match as well; what %s would say of them may be missing",
		others, strings.Join(compared, ", "))
}

// warnFunc adds a warning about one thing.
type warnFunc func(code, format string, args ...any)

// about returns what adds warnings about a rule or, without a name, something
// else at pos.
func (l *linter) about(rule string, pos Position) warnFunc {
	return func(code, format string, args ...any) {
		l.warnings = append(l.warnings, Warning{Code: code, Rule: rule, Pos: pos, Text: fmt.Sprintf(format, args...)})
	}
}

func (l *linter) order(w Warning) int32 {
	if i, ok := l.set.names[w.Rule]; ok {
		return i
	}
	return -1
}

// rule warns of what one rule, seen with the others, does.
func (l *linter) rule(i int32) {
	s := l.set
	r := &s.rules[i]
	warn := l.about(r.Name, r.Pos)
	lintLimits(r, warn)
	lintCost(r, warn)
	lintForgeable(r, warn)
	lintTariff(r, warn)
	l.oneNode(r, warn)
	s.lintClear(r, warn)
	for j := range r.Overrides {
		if o := &r.Overrides[j]; ended(o.Until, s.now) {
			l.about(r.Name, o.Pos)(CodeEnded, "override %d has ended at %s; take it out", j+1, o.Until.UTC().Format(timeFormat))
		}
	}
	if why := contradiction(l.match[i], r.Per, s.secret); why != "" {
		warn(CodeNeverMatches, "it can never match: %s", why)
		return
	}
	l.uncaught(i, warn)
}

// oneNode warns of what a tag costs. A rule with one counter has that on one node
// anyway.
func (l *linter) oneNode(r *Rule, warn warnFunc) {
	tag := r.Limits.Tag()
	if tag == "" || len(r.Per) == 0 && !r.Direct {
		return
	}
	if l.tags == nil {
		l.tags = make(map[string]int)
		for i := range l.set.rules {
			l.tags[l.set.rules[i].Limits.Tag()]++
		}
	}
	const cost = "the slot %q keeps the counters of all its keys on one node of a Redis Cluster, which bears all of its load and memory"
	others := l.tags[tag] - 1
	if others == 0 {
		warn(CodeOneNode, cost+", and gains nothing, since no other rule has that slot; leave it out", tag)
		return
	}
	with := "the other rule"
	if others > 1 {
		with = fmt.Sprintf("the %d other rules", others)
	}
	warn(CodeOneNode, cost+"; leave it out unless requests under it and %s of that slot must be one call", tag, with)
}

// timeFormat is how warnings write a time.
const timeFormat = "2006-01-02 15:04 MST"

// silence marks what is silenced, and warns of what silences nothing.
func (l *linter) silence() {
	all, unseen := make([]int, len(l.warnings)), slices.Contains(l.unseen, true)
	of := make(map[string][]int)
	for i := range l.warnings {
		all[i] = i
		of[l.warnings[i].Rule] = append(of[l.warnings[i].Rule], i)
	}
	apply := func(ignored []Ignore, what string, to []int, warn warnFunc) {
		for _, one := range ignored {
			used := false
			for _, i := range to {
				if w := &l.warnings[i]; w.Code == one.Code {
					used = true
					w.Ignored = one.Reason
				}
			}
			if !used && !(unseen && slices.Contains(compared, one.Code)) {
				warn(CodeIdleIgnore, "%s ignores %s, but there is no such warning; leave it out", what, one.Code)
			}
		}
	}
	apply(l.set.options.ignore, "the policy", all, l.about("", Position{}))
	for i := range l.set.rules {
		r := &l.set.rules[i]
		apply(r.Ignore, "it", of[r.Name], l.about(r.Name, r.Pos))
	}
}

// secrets warns once for the whole set: the remedy is one key.
func (l *linter) secrets() {
	s := l.set
	if s.hasher.keyed {
		return
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
		return
	}
	r := &s.rules[first]
	l.about(r.Name, r.Pos)(CodePlainHash,
		"it counts by the secret %s (%d of %d rules do), hashed without a key: whoever reads the store can test guesses; set one hash key of at least %d bytes on all nodes",
		strings.Join(entries, ", "), rules, len(s.rules), MinHashKey)
}
