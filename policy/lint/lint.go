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
// Most checks look at one thing: a rule (rule.go), the lists, the table of subjects and the names of
// entries (lists.go), and which rules replace each other in a circle (circles.go).
//
// Four checks compare rules with each other and with the lists (compare.go). With ten thousand
// rules, comparing each with all others would take too long. So lists of conditions are grouped by
// the values that they demand, and each list is compared only with those that the groups
// offer. Whether one list of conditions follows from another is decided condition by condition.
//
// # Caveats
//
// There are no false alarms about limits: a limit that is said never to bind never denies a request
// that the others admit. But some limits that never bind have no warning.
//
// Comparing rules stops after about a second of work. A warning with the code [Unseen] says how
// many rules were not compared with all others.
//
// # Reasons
//
// Comparing all pairs of ten thousand rules takes too long. So conditions are filed in groups by a
// value that they require, and compared with the groups that their own values lead to. What follows
// only from several conditions together is missed, and causes no warning.
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

// The codes of warnings. A code never changes its meaning.
const (
	// NeverBinds marks a limit that denies nothing because another limit of the same rule
	// always denies first.
	NeverBinds = "HG001"
	// NeverMatches marks a rule whose conditions contradict each other.
	NeverMatches = "HG002"
	// NeverFits marks a limit, or a bound on what is in progress, that is smaller than the cost of
	// a request, so that the rule denies every such request.
	NeverFits = "HG003"
	// Uncaught marks a rule that does not bind requests without one of its Per entries, where no
	// other rule does, or only one that counts all clients together.
	Uncaught = "HG004"
	// PlainHash marks a rule that counts by a secret in a set without a hash key.
	PlainHash = "HG005"
	// Unreachable marks a rule whose requests are all answered by the deny list or the
	// allow list.
	Unreachable = "HG006"
	// Shadowed marks a limit that denies nothing because another rule, which counts the same
	// requests, always denies first.
	Shadowed = "HG007"
	// Twice marks a rule that has the key and the limits of another rule, and counts some of
	// its requests a second time.
	Twice = "HG008"
	// OpenTariff marks a tariff, or a bound on what is in progress, that has no limits for other
	// tiers.
	OpenTariff = "HG009"
	// UnknownTier marks a tier in the table of subjects that no rule has limits for.
	UnknownTier = "HG010"
	// Ended marks an override, or an entry of a list, whose Until has passed.
	Ended = "HG011"
	// Forgeable marks a rule, or an entry of the allow list, that goes by an address which a client
	// can choose.
	Forgeable = "HG012"
	// ClearSecret marks a secret that is written in the policy in the clear.
	ClearSecret = "HG013"
	// IdleIgnore marks a policy.Ignore that silences nothing.
	IdleIgnore = "HG014"
	// OneNode marks a rule with many keys and a tag, because the tag keeps all its counters on one
	// node of a cluster.
	OneNode = "HG015"
	// Circle marks rules and entries of the deny list that replace each other, so that a
	// request which meets them all is bound by none of them.
	Circle = "HG016"
	// Unseen marks the first of the rules that were not compared with all others, because
	// that would take too long.
	Unseen = "HG017"
	// SharedLists marks a tariff by an entry that clients choose anew with each request, if its
	// lists of limits share counters.
	SharedLists = "HG018"
	// NoQueue marks a bound on what is in progress that lets requests wait but does not say how
	// many.
	NoQueue = "HG019"
	// ShortTTL marks a shared bound whose permits the store frees so soon that a renewal may come
	// too late.
	ShortTTL = "HG020"
	// Streams marks a bound that several clients share on a route that looks like a stream.
	Streams = "HG021"
	// Misspelt marks an entry whose name is probably misspelt. A condition on such an entry, or a
	// count by it, applies to no request.
	Misspelt = "HG022"
	// DefaultBucket marks a limit with a long period that is a token bucket only because its
	// algorithm is not given.
	DefaultBucket = "HG023"
	// Behind marks a rule for a script of PHP in a policy that does not say that PHP is behind.
	Behind = "HG024"
	// Unpriced marks a rule that counts money, where a model that it is about has no price.
	Unpriced = "HG025"
	// OpenQuota marks a bucket in a configuration of Envoy that lets requests pass without a share.
	OpenQuota = "HG026"
	// RareReports marks a bucket in a configuration of Envoy that may be reported too rarely.
	RareReports = "HG027"
)

// Code is a kind of warning.
type Code struct {
	Code string `json:"code"`
	// About is a sentence that says what the warning is about.
	About string `json:"about"`
	// Why says when the warning is given, and what is wrong with what it is about.
	Why string `json:"why"`
	// Remedy says what to do.
	Remedy string `json:"remedy"`
}

// URL returns the address of the documentation for a code.
func URL(code string) string {
	return "https://github.com/headgate/headgate/blob/main/docs/reference/lint.md#" + strings.ToLower(code)
}

// Codes returns all kinds of warnings, in the order of their codes.
func Codes() []Code {
	return []Code{
		{
			NeverBinds, "A limit never denies, because another limit of the rule always denies first.",
			"Count ÷ period must grow as the period shrinks. The second limit of `[20 per 60s, 20 per 3s]` is useless, and so is the first of `[100 per 60s, 5 per 3s]`.",
			"lower the count, or leave the limit out.",
		},
		{
			NeverMatches, "A rule never matches, because its conditions contradict each other.",
			"No request can meet all conditions of its `match` and have the entries of its `per`.",
			"drop one of the conditions.",
		},
		{
			NeverFits, "A limit holds less than a request costs, so that the rule denies every such request.",
			"The same holds for an `in_progress` that is smaller than the cost.",
			"raise the limit, or lower the cost.",
		},
		{
			Uncaught, "A rule does not bind requests without an entry that it counts by, and no other rule does.",
			"A client that leaves the entry out is not limited at all, or only together with all others: a rule with one counter for all clients does not stand in, unless it demands that the entry be absent.",
			"add a rule with `match: { ENTRY: absent }`. Or write `match: { ENTRY: present }` in this rule, if such requests are to pass freely.",
		},
		{
			PlainHash, "A rule counts by a secret that is hashed without a key.",
			"Whoever can read the store can test guesses of the secret.",
			"set one hash key on all nodes.",
		},
		{
			Unreachable, "A rule is never reached, because the deny list or the allow list answers first.",
			"An entry of one of the lists answers all requests that the rule matches.",
			"remove the rule or the entry.",
		},
		{
			Shadowed, "A limit never denies, because another rule always denies first.",
			"The other rule counts all requests of this one. Examples are a million a day beside a rule with 10 a second, and a limit for each user that is above the limit for all.",
			"lower the count, or leave the limit out.",
		},
		{
			Twice, "A rule counts, by the same key and limits, what another rule counts.",
			"Both rules match some requests, which are counted twice, under two counters.",
			"make one rule of the two, or let their `match` exclude each other.",
		},
		{
			OpenTariff, "A tariff has no limits for other tiers, so that the rule does not bind those.",
			"The tariff, in `limits` or in `in_progress`, has no `\"*\"`. A request whose tier is not in the table is not limited by the rule.",
			"add `\"*\"` with the limits of all other tiers.",
		},
		{
			UnknownTier, "The table of subjects has a tier that no rule has limits for.",
			"The tier may be misspelt. The warning is about the table and not about one rule. It lists the first 20 such tiers.",
			"correct the tier, or add it to a rule.",
		},
		{
			Ended, "An override, or an entry of a list, has ended.",
			"Its `until` has passed, and it has no effect any more.",
			"remove it.",
		},
		{
			Forgeable, "A rule goes by an address that a client can choose.",
			"A rule that counts by whole IPv6 addresses gives one customer 2^64 counters. A rule or an entry of the allow list that goes by a header such as `x-forwarded-for` believes what any client may write into it.",
			"count by `ip/64`.",
		},
		{
			ClearSecret, "The policy contains a secret in clear text.",
			"It stands in a condition, a list, or the table of subjects. More people can read the policy than may know the secret.",
			"write its [hash](../rules.md#secrets).",
		},
		{
			IdleIgnore, "An ignore silences no warning.",
			"An `ignore` of the rule or of the file silences nothing.",
			"leave the `ignore` out.",
		},
		{
			OneNode, "A rule by many keys has a tag, so that a cluster keeps all its counters on one node.",
			"One node of a Redis Cluster bears the load and the memory of all keys of the rule.",
			"leave the `slot` out, unless a request must meet this rule and others of the slot in one call.",
		},
		{
			Circle, "Rules or entries of the deny list replace each other in a circle, so that none of them holds.",
			"A request that matches all of them is bound by none. Entries of the deny list can do the same among the descriptors of a request of Envoy.",
			"take one of the names out of `replaces`.",
		},
		{
			Unseen, "A rule has not been compared with all others, because too many may apply to the same requests.",
			"Comparing stops after about a second. The warning says how many other rules were not compared. Warnings of HG004, HG006, HG007 and HG008 may be missing for these rules.",
			"demand a value of an entry in each rule, such as its route.",
		},
		{
			SharedLists, "Lists of limits by an entry that clients choose with each request share counters.",
			"The tariff is by `method`, `route`, `path`, `host` or `service`. A client sends such requests in turn, and what one list admits counts in the other.",
			"write a rule for each value, with a condition on it in `match`.",
		},
		{
			NoQueue, "Requests may wait for a permit, and the rule does not bound how many.",
			"The queue then holds 100 requests under each key.",
			"add `queue` to `in_progress`.",
		},
		{
			ShortTTL, "A store frees shared permits so soon that a renewal can be too late.",
			"With a `ttl` below a second, a renewal that is late by a moment ends the permit, and the work is cancelled.",
			"make `ttl` at least `1s`.",
		},
		{
			Streams, "A bound on what is in progress, which several clients share, applies to a route that looks like a stream.",
			"A route such as `.../events` or `.../ws` lasts as long as its client likes, and a few clients can take all permits.",
			"give streams a rule of their own, by client.",
		},
		{
			Misspelt, "The name of an entry looks misspelt, so that what looks at it holds for no request.",
			"A rule, a list or the table of subjects looks at `apikey`, or at `tennant` where other rules have `tenant`. No door fills in an entry of that name, so a request has it only if the caller sends it.",
			"correct the name. If it is right, list it in [`entries`](../rules.md#entries).",
		},
		{
			DefaultBucket, "A limit for a long period is a token bucket only because nothing names its algorithm.",
			"A token bucket admits nearly twice its count in the first period: `5 per 15m` admits nine requests in the first 15 minutes. The warning is about limits for more than a minute without a burst.",
			"write `algorithm: sliding_window` if the number is a promise, or `algorithm: token_bucket` if a bucket is meant.",
		},
		{
			Behind, "A rule is for a script of PHP, and the policy does not say that PHP is behind.",
			"PHP serves `/login.php/x` as `/login.php`. Unless the policy says so, the doors that read paths refuse such requests.",
			"write [`behind: php`](../gateway.md#what-is-behind), or silence the warning if the doors' `paths` say what is done.",
		},
		{
			Unpriced, "A rule counts money, and a model has no price.",
			"What a call of such a model costs is not known, so the call is refused.",
			"give the model a price under [`models`](../language-models.md#prices), or all other models one as `\"*\"`.",
		},
		{
			OpenQuota, "An Envoy lets requests pass without a share of the limit.",
			"In a configuration of Envoy with the [rate limit quota service](../envoy-quota.md), a bucket has no `no_assignment_behavior` or `expired_assignment_behavior`, or one that does not deny. Then each Envoy admits all requests while the service does not answer.",
			"write `fallback_rate_limit: { blanket_rule: DENY_ALL }` for both.",
		},
		{
			RareReports, "An Envoy may report so rarely that its share ends before it is renewed.",
			"A share lasts for 10 s after it was received, and a report renews it. The `reporting_interval` is more than 5 s. (Envoy 1.40 reports every 5 s whatever it says.)",
			"write `reporting_interval: 5s`.",
		},
	}
}
