package policy

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/muldiv"
	"github.com/headgate/headgate/policy/models"
)

// Outcome is what a policy says about a request, before any counter is read.
type Outcome struct {
	// Checks is the slice that was passed in, with a check appended for each rule that binds the
	// request. If a list has answered the request, there are none.
	Checks []headgate.Check
	// Bounds are the bounds on what is in progress, one for each rule with InProgress that binds
	// the request. A caller that does not know when the request ends cannot enforce them, and tells
	// its client the names of their rules.
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
	return s.DecideUsage(d, cost, nil, dst)
}

// Bind is Decide for one of several descriptors of a request. Rules that others replace are still
// among the checks. Once the checks for all descriptors are known, [Set.Replaced] says which of
// them do not count.
//
// If a cost is measured by an entry that is not a whole number, the request has the highest cost,
// and there is no error. A caller with several descriptors is a proxy, and proxies may admit
// requests for which they get an error.
func (s *Set) Bind(d Descriptor, cost int64, dst []headgate.Check) (Outcome, error) {
	return s.bind(d, cost, nil, dst, false)
}

// bind is Bind. With strict, an entry that cannot be measured is an error.
func (s *Set) bind(d Descriptor, cost int64, u *models.Usage, dst []headgate.Check, strict bool) (Outcome, error) {
	if s.subjects != nil {
		if known := s.Known(d); len(known) > 0 {
			// Of two entries with one name the first counts.
			var space [2 * MaxEntries]Entry
			return s.decide(append(append(space[:0], known...), d...), cost, u, dst, strict)
		}
	}
	return s.decide(d, cost, u, dst, strict)
}

// decide is Decide for a descriptor that has the table's entries.
func (s *Set) decide(d Descriptor, cost int64, u *models.Usage, dst []headgate.Check, strict bool) (Outcome, error) {
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
	var space [room]int32
	for _, i := range s.index.find(d, space[:0]) {
		if !holdAll(s.compiled[i].conditions, d) {
			continue
		}
		if err := s.apply(i, d, cost, u, &out); err != nil && strict {
			return Outcome{Checks: dst}, err
		}
		if max(len(out.Checks)-len(dst), len(out.Bounds)) > headgate.MaxChecks {
			return Outcome{Checks: dst}, headgate.Invalid("request", "", "more than %d rules bind it; narrow what they match", headgate.MaxChecks)
		}
	}
	return out, nil
}

// apply appends the bounds and checks by which the i-th rule binds the request, whose conditions hold.
// The error says that an entry cannot be measured, or the usage not be counted.
func (s *Set) apply(i int32, d Descriptor, cost int64, u *models.Usage, out *Outcome) (err error) {
	r := &s.compiled[i]
	if r.InProgress != nil {
		out.Bounds, err = s.appendBounds(out.Bounds, i, d, cost)
	}
	check, binds, problem := s.check(r, r.Counts, d, cost, u)
	if err == nil {
		err = problem
	}
	if binds {
		out.Checks = append(out.Checks, check)
		if old, ok := s.oldCheck(r, d, &check); ok {
			out.Checks = append(out.Checks, old)
		}
	}
	return err
}

// check returns the check by which a rule binds the request, if it does. The conditions of the rule
// are known to hold. The error says that an entry cannot be measured, or the usage not be counted;
// the check then has the highest cost.
func (s *Set) check(r *compiled, counts models.Counted, d Descriptor, cost int64, u *models.Usage) (c headgate.Check, binds bool, err error) {
	limits := s.limits(r, d)
	if limits == nil {
		return c, false, nil
	}
	key, ok := r.key(d, s.hasher)
	if !ok {
		return c, false, nil
	}
	factor, err := r.costs(d)
	units, problem := s.units(counts, cost, u)
	if problem != "" {
		units, err = headgate.MaxCount, r.invalid("counts", "the rule counts %v, and %s", counts, problem)
	}
	if factor == 0 || units == 0 {
		return c, false, nil
	}
	units = muldiv.Down(units, factor, 1, headgate.MaxCount)
	c = headgate.Check{Rule: limits, Key: key, Cost: units, Factor: factor, GiveBack: r.Reservation.GiveBack, Hints: r.Hints, Shadow: r.shadow(key)}
	return c, true, err
}

// oldCheck returns the check of the same rule under the old hash key, while the hash key is being
// changed. Nodes that do not know the new key yet count under the old one.
func (s *Set) oldCheck(r *compiled, d Descriptor, c *headgate.Check) (old headgate.Check, ok bool) {
	if !r.secret || s.old == nil {
		return old, false
	}
	old = *c
	old.Key, ok = r.key(d, s.old)
	old.Shadow = r.shadow(old.Key)
	return old, ok
}

// shadow reports whether the rule never denies under the key.
func (r *compiled) shadow(key string) bool {
	return r.more != nil && !enforced(r.Name, key, r.more.percent)
}

// costs is the factor by which the rule multiplies the request's own cost. If an entry cannot be
// measured, it returns the highest cost and an error.
func (r *compiled) costs(d Descriptor) (int64, error) {
	if r.Costs == nil {
		return r.Factor(), nil
	}
	factor, problem := r.Costs.of(d)
	if problem != "" {
		return factor, r.invalid("cost", "%s", problem)
	}
	return factor, nil
}

func (r *compiled) invalid(field, format string, args ...any) error {
	return headgate.Invalid(fmt.Sprintf("rule %q", r.Name), field, format, args...)
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

// AppendCheck appends to dst the check that [Set.Check] returns. While the hash key is being
// changed, it also appends the check under the old key; see [OldHashKey]. The errors are those of
// Check; dst is then returned as it was given.
func (s *Set) AppendCheck(dst []headgate.Check, name, key string, cost int64) ([]headgate.Check, error) {
	c, err := s.Check(name, key, cost)
	if err != nil {
		return dst, err
	}
	dst = append(dst, c)
	i := s.names[name]
	if r := &s.compiled[i]; r.secret && s.old != nil {
		d, err := s.keyDescriptor(i, key)
		if err != nil {
			return dst[:len(dst)-1], err
		}
		if old, ok := s.oldCheck(r, d, &c); ok {
			dst = append(dst, old)
		}
	}
	return dst, nil
}

// Check returns the check for the named rule and key, without looking at the rule's conditions. The
// key has the values that Decide would read from a descriptor. For a rule that counts by one entry,
// it is the entry's value. For a rule that counts by several, it is their values joined by "|",
// with "|" and "\" in them escaped by "\". For a rule with one counter for all, it is "". Check
// then hashes the values, or cuts them to a network, as Decide does. For a direct rule the key is
// used as it is.
//
// Tariff, overrides and costs know only those entries of the request that are in the key, and those
// that the table of subjects has for them. Allow and deny lists are not searched.
//
// The error is an [*UnknownRuleError], or a [*headgate.InvalidError] if the rule cannot have that
// key or cost.
func (s *Set) Check(name, key string, cost int64) (headgate.Check, error) {
	i, ok := s.names[name]
	if !ok {
		return headgate.Check{}, s.unknown(name)
	}
	r := &s.compiled[i]
	invalid := func(field, format string, args ...any) (headgate.Check, error) {
		return headgate.Check{}, r.invalid(field, format, args...)
	}
	if cost < 0 || cost > headgate.MaxCount {
		return invalid("cost", "the cost is %d, must be 1 to %d", cost, headgate.MaxCount)
	}
	if r.Limits == nil {
		return invalid("", "it has no limits, only in_progress, so there is nothing to check; acquire a permit instead")
	}
	d, err := s.keyDescriptor(i, key)
	if err != nil {
		return headgate.Check{}, err
	}
	// The caller says the cost in what the rule counts.
	c, binds, err := s.check(r, models.Requests, d, cost, nil)
	switch {
	case err != nil:
		return headgate.Check{}, err
	case binds && r.Direct:
		c.Key, c.Shadow = key, r.shadow(key)
		return c, nil
	case binds:
		return c, nil
	}
	if s.limits(r, d) == nil {
		return invalid("", "it has limits by %q, and none for a key of which that is not known; give it limits for all others, \"*\", or ask by descriptor", r.Tariff.Entry)
	}
	if factor, err := r.costs(d); err == nil && factor == 0 {
		return invalid("", "a request of which no %q is known costs it nothing; ask by descriptor", r.Costs.Entry)
	}
	// The key may hold a secret, so it is not repeated.
	return invalid("key", "the key has %d bytes, but the rule binds no request without %s", len(key), r.partNames())
}

// keyDescriptor takes a key apart into the entries of the request that it holds, and adds those
// that the table of subjects has for the client.
func (s *Set) keyDescriptor(i int32, key string) (Descriptor, error) {
	r := &s.compiled[i]
	switch {
	case r.Direct:
		if len(key) > headgate.MaxKey {
			return nil, r.invalid("key", "the key has %d bytes, must have at most %d", len(key), headgate.MaxKey)
		}
		return nil, nil
	case len(r.parts) == 0 && key != "":
		return nil, r.invalid("key", "the key must be empty: the rule has one counter for all requests")
	case len(r.parts) == 0:
		return s.known(nil), nil
	}
	values := []string{key}
	if len(r.parts) > 1 {
		var ok bool
		if values, ok = split(key, len(r.parts)); !ok {
			return nil, r.invalid("key", `the key has %d parts, must have %d joined by "|": %s`, len(values), len(r.parts), r.partNames())
		}
	}
	d := make(Descriptor, len(r.parts))
	for j := range r.parts {
		if len(values[j]) > MaxValue {
			return nil, r.invalid("key", "the key's %s has %d bytes, must have at most %d", r.parts[j].Entry, len(values[j]), MaxValue)
		}
		d[j] = Entry{r.parts[j].Entry, values[j]}
	}
	return s.known(d), nil
}

// known returns the descriptor together with the entries that the table has for its client.
func (s *Set) known(d Descriptor) Descriptor {
	if s.subjects == nil {
		return d
	}
	known := s.Known(d)
	return append(known[:len(known):len(known)], d...)
}

// MaxListed is how many entries an allow list or a deny list may have.
const MaxListed = 10_000

// ListEntry is one entry of an allow list or a deny list. It answers the requests that it matches
// before any rule is looked at.
type ListEntry struct {
	// Name identifies the entry in answers, logs and metrics. It has the form of a rule's name and
	// is unique among both lists. Required.
	Name string
	// Match has the conditions that must all hold: at least one.
	Match []Condition
	// Until is when the entry ends. The zero time is never.
	Until time.Time
	// Replaces matters for requests with several descriptors. If this entry answers one of the
	// descriptors, the rules and the entries of the deny list that it names do not bind the others;
	// see [Set.Replaced].
	Replaces []string
	// Pos is where the entry was written, for messages.
	Pos Position
}

func cloneList(list []ListEntry) []ListEntry {
	all := append([]ListEntry(nil), list...)
	for i := range all {
		all[i].Match, all[i].Replaces = cloneConditions(all[i].Match), slices.Clone(all[i].Replaces)
	}
	return all
}

// checkLists reports what is wrong with the lists.
func (o *options) checkLists() {
	for i, n := range []int{len(o.deny), len(o.allow)} {
		if name := []string{"deny", "allow"}[i]; n > MaxListed {
			o.bad(name, Position{}, "the %s list has %d entries, must have at most %d", name, n, MaxListed)
			return
		}
	}
	seen := make(map[string]bool)
	o.eachListed(func(field string, e *ListEntry) {
		bad := func(field, format string, args ...any) { o.bad(field, e.Pos, format, args...) }
		switch p := checkListName(e.Name); {
		case p != "":
			bad(field+".name", "entry %s: %s", Quote(e.Name), p)
		case seen[e.Name]:
			bad(field+".name", "the name %q is taken by another entry of the allow or deny list; give each its own", e.Name)
		}
		seen[e.Name] = true
		if len(e.Match) == 0 {
			bad(field, "the entry %q has no conditions and would answer every request; say which", e.Name)
		}
		checkConditions(field+".match", e.Match, bad)
	})
}

// checkListName returns what is wrong with the name of a list's entry, or of a rule without limits,
// or "".
func checkListName(name string) string {
	_, err := headgate.NewRule(name, headgate.PerSecond(1))
	if invalid, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return invalid.Problems[0].Text
	}
	return ""
}

func compileList(list []ListEntry, h *hasher) *lists {
	return newLists(len(list), func(i int) ([]Condition, time.Time) { return list[i].Match, list[i].Until }, h)
}

// replacers are the names of the rules, and of the entries of lists, that replace one rule or one
// entry of the deny list.
type replacers struct{ rules, entries []string }

// among returns the name of one of the replacers that binds the request by one of the checks or
// bounds, or that is among the entries that have answered it; "" if none does.
func (r *replacers) among(checks []headgate.Check, bounds []Bound, entries []*ListEntry) string {
	if r == nil {
		return ""
	}
	if len(r.rules) > 0 {
		for i := range checks {
			if c := &checks[i]; c.Rule != nil && slices.Contains(r.rules, c.Rule.Name()) {
				return c.Rule.Name()
			}
		}
		for i := range bounds {
			if name := bounds[i].Rule.Name; slices.Contains(r.rules, name) {
				return name
			}
		}
	}
	if len(r.entries) > 0 {
		for _, e := range entries {
			if slices.Contains(r.entries, e.Name) {
				return e.Name
			}
		}
	}
	return ""
}

// checkReplaces reports the names under Replaces that cannot be replaced. The names themselves are
// known to be valid.
func (s *Set) checkReplaces() {
	listed := make(map[string]bool) // by name, whether it is on the deny list
	for i := range s.options.allow {
		listed[s.options.allow[i].Name] = false
	}
	for i := range s.options.deny {
		listed[s.options.deny[i].Name] = true
	}
	for i := range s.rules {
		r := &s.rules[i]
		bad := s.badRule(i, r)
		if r.Direct && len(r.Replaces) > 0 {
			bad("replaces", "a direct rule replaces nothing: whoever names it says what binds the request")
		}
		if slices.Contains(r.Replaces, r.Name) {
			bad(fmt.Sprintf("replaces.%d", slices.Index(r.Replaces, r.Name)), "the rule would replace itself")
		}
		s.checkReplaced("replaces", r.Replaces, listed, bad)
	}
	s.options.eachListed(func(field string, e *ListEntry) {
		bad := func(field, format string, args ...any) { s.options.bad(field, e.Pos, format, args...) }
		field += ".replaces"
		if j := slices.Index(e.Replaces, e.Name); j >= 0 && s.Rule(e.Name) == nil {
			bad(fmt.Sprintf("%s.%d", field, j), "the entry would replace itself")
		}
		s.checkReplaced(field, e.Replaces, listed, bad)
	})
}

// checkReplaced reports which of the names cannot be replaced.
func (s *Set) checkReplaced(prefix string, names []string, listed map[string]bool, bad func(field, format string, args ...any)) {
	if len(names) > MaxReplaces {
		bad(prefix, "there are %d rules to replace, must be at most %d", len(names), MaxReplaces)
		return
	}
	seen := make(map[string]bool, len(names))
	for j, name := range names {
		field := fmt.Sprintf("%s.%d", prefix, j)
		denies, isListed := listed[name]
		switch other := s.Rule(name); {
		case seen[name]:
			bad(field, "the rule %q is named twice", name)
		case other != nil && other.Direct:
			bad(field, "the rule %q is direct, so that it binds whoever names it", name)
		case other != nil:
		case isListed && !denies:
			bad(field, "%q is an entry of the allow list, which limits nothing that could be replaced", name)
		case !isListed:
			bad(field, "there is no rule %q to replace, nor such an entry of the deny list", name)
		}
		seen[name] = true
	}
}

// compileReplaces records for each rule, and for each entry of the deny list, what replaces it.
func (s *Set) compileReplaces() {
	of := func(name string) *replacers {
		s.replaces = true
		if i, isRule := s.names[name]; isRule {
			c := &s.compiled[i]
			if c.replacedBy == nil {
				c.replacedBy = new(replacers)
			}
			return c.replacedBy
		}
		if s.deniedBy == nil {
			s.deniedBy = make(map[string]*replacers)
		}
		if s.deniedBy[name] == nil {
			s.deniedBy[name] = new(replacers)
		}
		return s.deniedBy[name]
	}
	for i := range s.rules {
		for _, name := range s.rules[i].Replaces {
			r := of(name)
			r.rules = append(r.rules, s.rules[i].Name)
		}
	}
	s.options.eachListed(func(_ string, e *ListEntry) {
		for _, name := range e.Replaces {
			r := of(name)
			r.entries = append(r.entries, e.Name)
		}
	})
}

// Replaced reports whether the rule of the check is replaced by the rule of another check, or by an
// entry of a list. The checks are those of all descriptors of one request, and the entries are
// those that have answered some of its descriptors.
func (s *Set) Replaced(c *headgate.Check, checks []headgate.Check, entries ...*ListEntry) bool {
	return c.Rule != nil && s.replacing(c.Rule.Name(), checks, nil, entries...) != ""
}

// ReplacedEntry is Replaced for an entry of the deny list.
func (s *Set) ReplacedEntry(e *ListEntry, checks []headgate.Check, entries ...*ListEntry) bool {
	return s.replaces && s.deniedBy[e.Name].among(checks, nil, entries) != ""
}

// replacing returns the name of what replaces the rule of that name, or "".
func (s *Set) replacing(name string, checks []headgate.Check, bounds []Bound, entries ...*ListEntry) string {
	if !s.replaces {
		return ""
	}
	i, ok := s.names[name]
	if !ok {
		return ""
	}
	return s.compiled[i].replacedBy.among(checks, bounds, entries)
}

// dropReplaced removes the bounds, and the checks from the given place on, whose rules are replaced
// by others among them.
func (s *Set) dropReplaced(out *Outcome, from int) {
	if !s.replaces {
		return
	}
	own, bounds := out.Checks[from:], out.Bounds
	var kept []headgate.Check
	for i := range own {
		if s.replacing(own[i].Rule.Name(), own, bounds) == "" {
			kept = append(kept, own[i])
		}
	}
	var left []Bound
	for i := range bounds {
		if s.replacing(bounds[i].Rule.Name, own, bounds) == "" {
			left = append(left, bounds[i])
		}
	}
	clear(own)
	out.Checks, out.Bounds = append(out.Checks[:from], kept...), left
}
