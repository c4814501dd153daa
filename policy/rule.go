package policy

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// The bounds of a [Set].
const (
	// MaxRules is how many rules a set may have.
	MaxRules = 10_000
	// MaxConditions is how many conditions one rule may have.
	MaxConditions = 32
	// MaxReplaces is how many other rules one rule may replace.
	MaxReplaces = 1000
)

// Rule is one rule of a policy: which requests it binds, by what it counts them, and its limits.
type Rule struct {
	// Name is the name under which counters are kept. It is the name of Limits, and may be left out
	// if Limits is set.
	Name string
	// Match has the conditions that must all hold. Without any, the rule
	// applies to every request.
	Match []Condition
	// Per has the parts of the key under which requests are counted. Without any, there is one
	// counter for all requests. The rule does not bind a request that lacks one of the entries.
	Per []Part
	// Limits are the limits. They are required, unless there is a Tariff or InProgress. In a rule
	// of a set, they are never nil if the rule has a Tariff: they are then the tariff's Other or,
	// without one, those of its first tier. They are nil in a rule that has InProgress only.
	Limits *headgate.Rule
	// Tariff has limits by the value of an entry, instead of Limits.
	Tariff *Tariff
	// InProgress bounds how much may be in progress at the same time, in addition to the limits or
	// instead of them. Nil means no bound. It can be enforced only where the end of a request is
	// known: see [Bound].
	InProgress *InProgress
	// Overrides give other limits to some of the requests. If several match, the first counts.
	Overrides []Override
	// Cost is the factor by which the request's own cost is multiplied, 1 to headgate.MaxCount.
	// Zero means one.
	Cost int64
	// Costs says what a request costs by one of its entries, instead of Cost.
	Costs *Costs
	// Soft is the percentage of a limit, 1 to 99, from which [Set.Soft] warns.
	// Zero means never.
	Soft int
	// Mode says whether the rule may deny.
	Mode Mode
	// Enforce is the percentage of keys for which the rule may deny, 1 to 100. For the others it is
	// in shadow. Zero means 100. The choice depends only on the rule's name and the key. A key that
	// is chosen at one percentage is also chosen at every larger one.
	Enforce int
	// GiveBackOn are statuses: if a request ends with one of them, its units are given back.
	// ChargeOn are statuses, too: unless a request ends with one of them, its units are given back.
	// A rule may have only one of the two.
	GiveBackOn, ChargeOn Statuses
	// Reservation says how requests are treated whose cost is settled later.
	Reservation Reservation
	// OnError says what happens to requests that the rule binds while the store does not answer.
	// With headgate.OnErrorReturn, those who ask the store decide.
	OnError headgate.OnError
	// Consistency says how exactly the rule counts. DenyCache says whether a node remembers its
	// denials; with headgate.DenyCacheDefault, those who ask the store decide.
	Consistency headgate.Consistency
	DenyCache   headgate.DenyCache
	// Replaces names other rules, which do not bind a request that this rule binds. It may also
	// name entries of the deny list: if a request has several descriptors, and this rule binds one
	// of them, these entries do not deny the others. A rule replaces others even if it is itself
	// replaced, or in shadow.
	Replaces []string
	// Ignore silences warnings of package lint about the rule.
	Ignore []Ignore
	// Direct marks a rule that no descriptor matches: callers name the rule and the key. It has
	// neither Match nor Per.
	Direct bool
	// Pos is where the rule was written, for messages.
	Pos Position
	// Written says for parts of the rule how they were written, for use in messages. Its keys are
	// the words of [Mistake.Field]. Parts may be missing from it.
	Written map[string]Written
}

// Written says how a part of a rule was written.
type Written struct {
	// Pos is where the part was written.
	Pos Position
	// Default says for a limit that neither the limit nor its rule names an algorithm.
	Default bool
}

// At returns where the field was written. If that is not known, it returns the position of the
// closest part that contains the field.
func (r *Rule) At(field string) Position {
	for ; field != ""; field = field[:max(0, strings.LastIndexByte(field, '.'))] {
		if w, ok := r.Written[field]; ok {
			return w.Pos
		}
	}
	return r.Pos
}

// Factor is the rule's Cost with its default applied. It does not include Costs.
func (r *Rule) Factor() int64 { return max(r.Cost, 1) }

// clone returns a copy that is independent of the caller's slices.
func (r *Rule) clone() Rule {
	c := *r
	c.Match = cloneConditions(r.Match)
	c.Per = slices.Clone(r.Per)
	c.Tariff = r.Tariff.clone()
	c.InProgress = r.InProgress.clone()
	c.Overrides = cloneOverrides(r.Overrides)
	c.Costs = r.Costs.clone()
	c.Ignore, c.Replaces = slices.Clone(r.Ignore), slices.Clone(r.Replaces)
	c.Written = maps.Clone(r.Written)
	c.GiveBackOn, c.ChargeOn = slices.Clone(r.GiveBackOn), slices.Clone(r.ChargeOn)
	if c.Limits == nil && c.Tariff != nil {
		c.Limits = c.Tariff.first()
	}
	if c.Name == "" && c.Limits != nil {
		c.Name = c.Limits.Name()
	}
	return c
}

// check reports everything that is wrong with the rule.
func (r *Rule) check(bad func(field, format string, args ...any)) {
	switch {
	case r.Tariff != nil:
		r.Tariff.check(r.Name, bad)
		if r.Limits != nil && !r.Tariff.has(r.Limits) {
			bad("limits", "there are both limits and a tariff; write the limits as the tariff's other ones")
		}
	case r.Limits == nil && r.InProgress == nil:
		bad("limits", "there are no limits; make them with headgate.NewRule")
	case r.Limits == nil:
		// No other check has looked at the name.
		if p := checkListName(r.Name); p != "" {
			bad("name", "%s", p)
		}
		r.checkRateless(bad)
	case r.Name != r.Limits.Name():
		bad("name", "the name is %q but the limits were made for %q; counters can be kept under one name only", r.Name, r.Limits.Name())
	}
	if r.Cost < 0 || r.Cost > headgate.MaxCount {
		bad("cost", "cost is %d, must be 1 to %d", r.Cost, headgate.MaxCount)
	}
	if r.Costs != nil {
		r.Costs.check(bad)
		if r.Cost > 1 {
			bad("cost", "there are both a cost, %d, and costs by %q; keep one", r.Cost, r.Costs.Entry)
		}
	}
	if r.InProgress != nil {
		r.InProgress.check(bad)
		if r.Direct {
			bad("in_progress", "there is a bound on what is in progress, but a direct rule is reached by name and key only")
		}
	}
	r.checkTags(bad)
	r.checkMode(bad)
	r.checkOutcome(bad)
	r.checkConsistency(bad)
	if r.OnError > headgate.OnErrorLocal {
		bad("on_store_error", "on_store_error %v is unknown", r.OnError)
	}
	if r.Direct && len(r.Match)+len(r.Per) > 0 {
		bad("match", "there are %d conditions and %d key parts, but a direct rule is reached by name and key only", len(r.Match), len(r.Per))
	}
	if r.Direct && (r.Tariff != nil || len(r.Overrides) > 0 || r.Costs != nil) {
		bad("limits", "there are limits or costs by an entry, but a direct rule is reached by name and key only")
	}
	checkConditions("match", r.Match, bad)
	if len(r.Overrides) > MaxOverrides {
		bad("overrides", "there are %d overrides, must be at most %d", len(r.Overrides), MaxOverrides)
	}
	for i := range r.Overrides[:min(len(r.Overrides), MaxOverrides)] {
		r.Overrides[i].check(fmt.Sprintf("overrides.%d", i), r, bad)
	}
	if len(r.Per) > MaxParts {
		bad("per", "there are %d key parts, must be at most %d", len(r.Per), MaxParts)
	}
	for i, p := range r.Per {
		field := fmt.Sprintf("per.%d", i)
		if problem := p.check(); problem != "" {
			bad(field, "%s", problem)
		}
		for j, earlier := range r.Per[:i] {
			if earlier.Entry == p.Entry {
				bad(field, "entry %q is already part %d of the key; leave one of them out", p.Entry, j+1)
				break
			}
		}
	}
	for i := range r.Ignore {
		if p := r.Ignore[i].check(); p != "" {
			bad(fmt.Sprintf("ignore.%d", i), "%s", p)
		}
	}
}

// checkRateless reports fields that only a rule with limits may have.
func (r *Rule) checkRateless(bad func(field, format string, args ...any)) {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"soft", r.Soft != 0},
		{"give_back_on", len(r.GiveBackOn) > 0},
		{"charge_on", len(r.ChargeOn) > 0},
		{"reservation", r.Reservation != Reservation{}},
		{"consistency", r.Consistency != headgate.Strict},
		{"deny_cache", r.DenyCache != headgate.DenyCacheDefault},
	} {
		if f.given {
			bad(f.name, "%s is about limits, and the rule has none, only in_progress; leave it out, or add limits", f.name)
		}
	}
	for i := range r.Overrides {
		if o := &r.Overrides[i]; o.Limits != nil {
			bad(fmt.Sprintf("overrides.%d", i), "the override has limits, but the rule has none; give it in_progress instead")
		}
	}
}

// checkTags reports limits whose slot tag differs from the rule's, so that their counters would be
// elsewhere.
func (r *Rule) checkTags(bad func(field, format string, args ...any)) {
	own := r.Limits
	if own == nil && r.Tariff != nil {
		own = r.Tariff.first()
	}
	if own == nil {
		return
	}
	r.eachLimits(func(field, which string, limits *headgate.Rule) {
		if limits.Tag() != own.Tag() {
			bad(field, "the rule's tag is %q, but that of %s is %q; a rule has its counters in one place only", own.Tag(), which, limits.Tag())
		}
	})
}

// eachLimits calls f for all limits that the rule has for some request, with the field in which
// they stand and with words for messages.
func (r *Rule) eachLimits(f func(field, which string, limits *headgate.Rule)) {
	call := func(field, which string, limits *headgate.Rule) {
		if limits != nil {
			f(field, which, limits)
		}
	}
	call("limits", "the rule", r.Limits)
	if r.Tariff != nil {
		call("tariff", "the tariff's other limits", r.Tariff.Other)
		for i := range r.Tariff.Tiers {
			call(fmt.Sprintf("tariff.%d", i), "the tier "+Quote(r.Tariff.Tiers[i].Value), r.Tariff.Tiers[i].Limits)
		}
	}
	for i := range r.Overrides[:min(len(r.Overrides), MaxOverrides)] {
		call(fmt.Sprintf("overrides.%d", i), "the override", r.Overrides[i].Limits)
	}
}

// EachLimits returns all limits that the rule has for some request: its own, those of each tier of
// its tariff, and those of its overrides. It may return the same limits twice.
func (r *Rule) EachLimits() iter.Seq[*headgate.Rule] {
	return func(yield func(*headgate.Rule) bool) {
		more := true
		r.eachLimits(func(_, _ string, limits *headgate.Rule) {
			more = more && yield(limits)
		})
	}
}

func (r *Rule) checkMode(bad func(field, format string, args ...any)) {
	if r.Mode >= modes {
		bad("mode", "mode %d is unknown", r.Mode)
	}
	if r.Soft < 0 || r.Soft > 99 {
		bad("soft", "soft is %d%%, must be 1%% to 99%%", r.Soft)
	}
	if r.Enforce < 0 || r.Enforce > 100 {
		bad("enforce", "enforce is %d%%, must be 1%% to 100%%; for none write mode: shadow", r.Enforce)
	}
	if r.Mode < modes && r.Mode != ModeEnforce && r.Enforce > 0 {
		bad("enforce", "the rule is in mode %s and cannot be enforced for %d%% of its keys; drop one of the two", r.Mode, r.Enforce)
	}
}
