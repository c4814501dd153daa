package policy

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy/models"
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
	// Counts is what the limits count.
	Counts models.Counted
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
	// Hints say what happens to requests that the rule binds while the store does not answer, how
	// exactly the rule counts, whether a node remembers its denials, and where the limits hold if
	// there are several regions. With headgate.OnErrorReturn and headgate.DenyCacheDefault, those who
	// ask the store decide.
	headgate.Hints
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
		if r.Limits != nil && r.Limits != r.Tariff.first() {
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
	if !r.Counts.Known() {
		bad("counts", "counts %v is unknown", r.Counts)
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
	r.checkScope(bad)
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
		{"counts", r.Counts != models.Requests},
		{"soft", r.Soft != 0},
		{"give_back_on", len(r.GiveBackOn) > 0},
		{"charge_on", len(r.ChargeOn) > 0},
		{"reservation", r.Reservation != Reservation{}},
		{"consistency", r.Consistency != headgate.Strict},
		{"deny_cache", r.DenyCache != headgate.DenyCacheDefault},
		{"scope", r.Scope != headgate.Regional},
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

// checkConsistency reports what is wrong with how the rule counts.
func (r *Rule) checkConsistency(bad func(field, format string, args ...any)) {
	if r.DenyCache > headgate.DenyCacheOff {
		bad("deny_cache", "deny_cache %v is unknown", r.DenyCache)
	}
	if r.Consistency > headgate.Async {
		bad("consistency", "consistency %v is unknown", r.Consistency)
		return
	}
	if l := r.limitThat(func(l *headgate.Limit) bool { return !r.Consistency.Counts(l.Algorithm) }); l != nil {
		bad("consistency", "consistency is %s, but the store must be asked each time for the %s %q; make the rule strict, or give that limit a rule of its own",
			r.Consistency, l.Algorithm, l)
	}
}

// limitThat returns the first of all limits of the rule for which is holds, or nil.
func (r *Rule) limitThat(is func(l *headgate.Limit) bool) *headgate.Limit {
	for limits := range r.EachLimits() {
		all := limits.Limits()
		for i := range all {
			if is(&all[i]) {
				return &all[i]
			}
		}
	}
	return nil
}

// checkScope reports limits that regions cannot divide.
func (r *Rule) checkScope(bad func(field, format string, args ...any)) {
	if r.Scope > headgate.Global {
		bad("scope", "scope %v is unknown", r.Scope)
	}
	if r.Scope != headgate.Global {
		return
	}
	if l := r.limitThat(func(l *headgate.Limit) bool { return l.Undivided() != "" }); l != nil {
		bad("scope", "scope is global, but the limit %q cannot be divided among regions: %s; make the rule regional, or give that limit a rule of its own", l, l.Undivided())
	}
}

// MaxStatuses is how many entries one list of [Statuses] may have.
const MaxStatuses = 100

// Statuses are HTTP statuses or, for other protocols, the corresponding HTTP statuses.
type Statuses []StatusRange

// StatusRange is the statuses First to Last, both from 100 to 599.
type StatusRange struct{ First, Last int }

// ParseStatus reads "304", or "5xx" for 500 to 599.
func ParseStatus(s string) (StatusRange, error) {
	if class, ok := strings.CutSuffix(s, "xx"); ok && len(class) == 1 && class[0] >= '1' && class[0] <= '5' {
		first := int(class[0]-'0') * 100
		return StatusRange{first, first + 99}, nil
	}
	n, err := strconv.Atoi(s)
	r := StatusRange{n, n}
	if err != nil || !r.valid() {
		return StatusRange{}, headgate.Invalid("", "status", "status %q is not a number from 100 to 599 or a class from 1xx to 5xx", s)
	}
	return r, nil
}

func (r StatusRange) valid() bool { return r.First >= 100 && r.First <= r.Last && r.Last <= 599 }

// String writes the statuses as [ParseStatus] reads them, or as "400-404".
func (r StatusRange) String() string {
	switch {
	case r.First == r.Last:
		return strconv.Itoa(r.First)
	case r.First%100 == 0 && r.Last == r.First+99:
		return strconv.Itoa(r.First/100) + "xx"
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Has reports whether the status is one of them.
func (s Statuses) Has(status int) bool {
	return slices.ContainsFunc(s, func(r StatusRange) bool { return r.First <= status && status <= r.Last })
}

// String writes the list, such as "[304, 5xx]".
func (s Statuses) String() string {
	texts := make([]string, len(s))
	for i, r := range s {
		texts[i] = r.String()
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func (s Statuses) check(field string, bad func(field, format string, args ...any)) {
	if len(s) > MaxStatuses {
		bad(field, "there are %d statuses, must be at most %d", len(s), MaxStatuses)
	}
	for i, r := range s {
		if !r.valid() {
			bad(fmt.Sprintf("%s.%d", field, i), "status %v is not from 100 to 599", r)
		}
	}
}

// Reservation says how a rule treats requests whose cost is settled later; see [headgate.Ledger].
type Reservation struct {
	// For is how long they may take to be settled: whole milliseconds up to headgate.MaxTerm. Zero
	// means headgate.DefaultTerm. If several rules bind a request, the shortest counts.
	For time.Duration
	// GiveBack says that the units are given back if nobody settles. Without it the estimate stays
	// charged.
	GiveBack bool
	// Typical says that of a call to a language model is reserved what calls of the same key and
	// model have come to use, and not the most that it may use. Doors that do not see the answer
	// reserve the most all the same.
	Typical bool
}

func (r *Rule) checkOutcome(bad func(field, format string, args ...any)) {
	r.GiveBackOn.check("give_back_on", bad)
	r.ChargeOn.check("charge_on", bad)
	if len(r.GiveBackOn) > 0 && len(r.ChargeOn) > 0 {
		bad("charge_on", "there are both give_back_on, %v, and charge_on, %v; one says it all", r.GiveBackOn, r.ChargeOn)
	}
	if t := (headgate.Terms{For: r.Reservation.For}); t.Validate() != nil {
		bad("reservation", "reservations are for %v, must be whole milliseconds up to %v", r.Reservation.For, headgate.MaxTerm)
	}
	if r.Reservation.Typical && r.Counts == models.Requests {
		bad("reservation", "it reserves what is typical, but counts requests, of which each is one; leave it out, or count tokens or money")
	}
}

// Charged reports whether a request that has ended with the status stays charged
// under the rule.
func (r *Rule) Charged(status int) bool {
	if len(r.ChargeOn) > 0 {
		return r.ChargeOn.Has(status)
	}
	return !r.GiveBackOn.Has(status)
}

// Awaits reports whether the status of the request decides, for any of the checks, whether it stays
// charged. If not, there is no need to wait for the status.
func (s *Set) Awaits(checks []headgate.Check) bool {
	if !s.awaits {
		return false
	}
	for i := range checks {
		if r := s.Rule(checks[i].Rule.Name()); r != nil && len(r.GiveBackOn)+len(r.ChargeOn) > 0 {
			return true
		}
	}
	return false
}

// Charged is [Rule.Charged] for a check: true for rules that are not of the set.
func (s *Set) Charged(c *headgate.Check, status int) bool {
	r := s.Rule(c.Rule.Name())
	return r == nil || r.Charged(status)
}

// Term is how long a reservation of the checks lasts: the shortest Reservation.For of their rules. If
// no rule has one, it is headgate.DefaultTerm, and 15 minutes if a rule counts what models use.
func (s *Set) Term(checks []headgate.Check) time.Duration {
	shortest, usual := time.Duration(0), headgate.DefaultTerm
	for i := range checks {
		r := s.Rule(checks[i].Rule.Name())
		if r == nil {
			continue
		}
		if r.Reservation.For != 0 && (shortest == 0 || r.Reservation.For < shortest) {
			shortest = r.Reservation.For
		}
		if r.Counts != models.Requests {
			usual = models.Term
		}
	}
	if shortest == 0 {
		return usual
	}
	return shortest
}

// Settle returns, for each check of the reservation, the units to settle it at, for a request of
// the given cost that has ended with the status. A negative cost means the estimate. A status of 0
// means that the status is not known. Rules that count what models use are settled at u. What cannot
// be said of u under a rule, such as the price of a model that the set does not know any more, leaves
// the estimate charged.
func (s *Set) Settle(r *headgate.Reservation, cost int64, u *models.Usage, status int) []int64 {
	units := r.Units(cost)
	for i := range r.Checks {
		c := &r.Checks[i]
		estimated := cost < 0
		if rule := s.Rule(c.Rule.Name()); rule != nil && rule.Counts != models.Requests {
			n, problem := s.units(rule.Counts, 1, u)
			if estimated = u == nil || problem != ""; !estimated {
				units[i] = r.Units(n)[i]
			}
		}
		switch {
		case status != 0 && !s.Charged(c, status):
			units[i] = 0
		case estimated:
			units[i] = c.Units()
		}
	}
	return units
}

// MaxCosts is how many values one [Costs] may have.
const MaxCosts = 10_000

// Costs says what a request costs, depending on one entry of its descriptor: by a table (Values) or
// by a measured number (Per). The result is multiplied by the cost of the request itself, like a
// rule's Cost.
type Costs struct {
	// Entry is the entry's name, such as "route" or "bytes". Required.
	Entry string
	// Values has the cost for each value, 0 to headgate.MaxCount. A rule does not bind a request
	// whose cost is 0.
	Values map[string]int64
	// Other is the cost for every other value, and for requests without the entry, 0 to
	// headgate.MaxCount. It has no meaning without Values.
	Other int64
	// Per is for entries that hold a whole number, and replaces Values: the cost is that number
	// divided by Per, rounded up. Per is 1 to headgate.MaxCount. A request without the entry, or
	// with 0, costs 1.
	Per int64
	// Max is the most that a request costs, whatever its entry says, 1 to headgate.MaxCount. Zero
	// means headgate.MaxCount. It has no meaning without Per.
	Max int64
}

func (c *Costs) clone() *Costs {
	if c == nil {
		return nil
	}
	d := *c
	d.Values = maps.Clone(c.Values)
	return &d
}

func (c *Costs) check(bad func(field, format string, args ...any)) {
	if p := checkEntryName(c.Entry); p != "" {
		bad("cost", "%s", p)
	}
	if len(c.Values) > MaxCosts {
		bad("cost", "there are %d costs, must be at most %d", len(c.Values), MaxCosts)
	}
	if c.Per == 0 && len(c.Values) == 0 {
		bad("cost", "the costs by %q have neither values nor a measure", c.Entry)
	}
	if c.Per != 0 && (len(c.Values) > 0 || c.Other != 0) || c.Per == 0 && c.Max != 0 {
		bad("cost", "the costs by %q are both a table and a measure; keep one", c.Entry)
	}
	for value, cost := range c.Values {
		if value == "" || len(value) > MaxValue {
			bad("cost", "the value %s has %d bytes, must have 1 to %d", Quote(value), len(value), MaxValue)
		}
		if cost < 0 || cost > headgate.MaxCount {
			bad("cost", "the cost of %s is %d, must be 0 to %d", Quote(value), cost, headgate.MaxCount)
		}
	}
	for _, bound := range []struct {
		name  string
		value int64
	}{{"the cost of other values", c.Other}, {"per", c.Per}, {"the largest cost", c.Max}} {
		if bound.value < 0 || bound.value > headgate.MaxCount {
			bad("cost", "%s is %d, must be at most %d and not negative", bound.name, bound.value, headgate.MaxCount)
		}
	}
}

// of is the cost of the request. If the entry is not a whole number, the text says so, and the cost
// is the highest.
func (c *Costs) of(d Descriptor) (int64, string) {
	value, ok := d.Get(c.Entry)
	if c.Per == 0 {
		if ok {
			if cost, known := c.Values[value]; known {
				return cost, ""
			}
		}
		return c.Other, ""
	}
	if !ok {
		return 1, ""
	}
	most := c.Max
	if most == 0 {
		most = headgate.MaxCount
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		for i := range len(value) {
			if value[i] < '0' || value[i] > '9' {
				return most, fmt.Sprintf("the entry %q is %s, must be a whole number: the rule's cost is measured by it", c.Entry, Quote(value))
			}
		}
		return most, "" // More than 64 bits hold.
	}
	units := n / uint64(c.Per)
	if n%uint64(c.Per) != 0 {
		units++
	}
	return int64(max(1, min(units, uint64(most)))), ""
}

// Ignore silences the warnings of one code, for a reason. Package lint makes the warnings.
type Ignore struct {
	// Code is the code of the warnings, such as "HG004" (lint.Uncaught).
	Code string `json:"code"`
	// Reason says why the warnings do not matter here. Required.
	Reason string `json:"reason"`
}

// check returns what is wrong with the Ignore, or "". It does not know whether lint has such a
// code.
func (i Ignore) check() string {
	switch {
	case i.Code == "":
		return "the code of the warning to ignore is missing; it is one such as HG004"
	case strings.TrimSpace(i.Reason) == "":
		return fmt.Sprintf("the reason for ignoring %s is missing; say why it does not matter here", i.Code)
	}
	return ""
}
