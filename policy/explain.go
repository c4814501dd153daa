package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// Explanation is why a policy decides a request as it does, for people
// ([Explanation.String]) and for programs. Secret values are in it as hashes.
type Explanation struct {
	// Entries are what is known of the request: that of the table of subjects
	// first, without what it replaces.
	Entries []ExplainedEntry `json:"entries"`
	// Cost is that of the request itself.
	Cost int64 `json:"cost"`
	// Steps is how the entries of an ordered descriptor were looked up among nested
	// limits, one after the other: of a policy that has those, see package nested.
	Steps []ExplainedStep `json:"steps,omitempty"`
	// Denied and Allowed are the entry of the deny or the allow list that
	// answers the request. No rule is looked at then. Among nested limits they are
	// the limit that admits nothing, or everything.
	Denied  *ExplainedList `json:"denied,omitempty"`
	Allowed *ExplainedList `json:"allowed,omitempty"`
	// Rules has every rule, in the order of the policy; twice where it binds the
	// request under the old hash key too.
	Rules []ExplainedRule `json:"rules"`
	// Error is why the request cannot be decided at all.
	Error string `json:"error,omitempty"`
	// Verdict is what the store's counters come to, once [Explanation.Observe]
	// was told of them.
	Verdict *ExplainedVerdict `json:"verdict,omitempty"`
}

// ExplainedEntry is one entry of the request.
type ExplainedEntry struct {
	Name string `json:"name"`
	// Value is the entry's value or, if that is secret, its hash.
	Value string `json:"value"`
	// Secret says that the value is a hash.
	Secret bool `json:"secret,omitempty"`
	// Known says that the entry is from the table of subjects.
	Known bool `json:"from_subjects,omitempty"`
	// Replaced says that the request gave the entry another value, which the
	// table's goes before.
	Replaced bool `json:"replaced,omitempty"`
}

// ExplainedStep is how one entry of an ordered descriptor was looked up.
type ExplainedStep struct {
	// Entry is the entry's name.
	Entry string `json:"entry"`
	// Node is the path of the descriptor of the configuration that the entry leads
	// to; empty if it leads nowhere.
	Node string `json:"node,omitempty"`
	// By is what the two have in common: "value", "star" or "key".
	By  string   `json:"by,omitempty"`
	Pos Position `json:"pos,omitzero"`
}

// ExplainedList is an entry of a list.
type ExplainedList struct {
	Name string   `json:"name"`
	Pos  Position `json:"pos,omitzero"`
}

// ExplainedRule is what one rule has to do with the request.
type ExplainedRule struct {
	Rule string   `json:"rule"`
	Pos  Position `json:"pos,omitzero"`
	// Binds says whether the rule binds the request. All that follows is of use
	// only if it does, except Why.
	Binds bool `json:"binds"`
	// Why says what keeps the rule from binding the request.
	Why string `json:"why,omitempty"`
	// Key is what the request is counted under; secret values in it are hashes.
	Key string `json:"key"`
	// Hashed says that there is a secret in the key.
	Hashed bool `json:"hashed,omitempty"`
	// OldHashKey says that the rule binds the request once more, under the old hash
	// key: see [WithOldHashKey].
	OldHashKey bool `json:"old_hash_key,omitempty"`
	// Cost is what the request is charged.
	Cost int64 `json:"cost,omitempty"`
	// Tier is the value of the tariff's entry whose limits apply; "*" if those
	// of all others do.
	Tier string `json:"tier,omitempty"`
	// Override counts from 1, and says which override's limits apply.
	Override int `json:"override,omitempty"`
	// Limits are those that apply.
	Limits []ExplainedLimit `json:"limits,omitempty"`
	// Admits is "everything" or "nothing" if that is what the rule does instead of
	// counting, as some nested limits do.
	Admits string `json:"admits,omitempty"`
	// Depth is, of a nested limit, of how many entries descriptors must be.
	Depth int `json:"depth,omitempty"`
	// Replaces are the names of rules, or those of nested limits, that do not bind
	// what this one binds; LimitName is what a nested limit is replaced by.
	Replaces  []string `json:"replaces,omitempty"`
	LimitName string   `json:"limit_name,omitempty"`
	// Shadow says that the rule counts the request and never denies it.
	Shadow bool `json:"shadow,omitempty"`
	// Quota says that callers are told when it would have denied: see [ModeQuota].
	Quota bool `json:"quota,omitempty"`
	// Enforce is for how many percent of its keys the rule may deny.
	Enforce int `json:"enforce"`
	// Soft is the percentage of a limit from which the rule warns; zero if it
	// does not.
	Soft int `json:"soft,omitempty"`
	// OnError is what is done with requests while the store does not answer; empty
	// if the rule leaves it to the server.
	OnError string `json:"on_store_error,omitempty"`
	// Consistency is how exactly the rule counts, if not strictly; DenyCache is "on"
	// or "off" if the rule says whether its denials are remembered.
	Consistency string `json:"consistency,omitempty"`
	DenyCache   string `json:"deny_cache,omitempty"`
	// GiveBackOn and ChargeOn are the statuses by which a request that has ended does
	// not stay charged, or the only ones by which it does.
	GiveBackOn string `json:"give_back_on,omitempty"`
	ChargeOn   string `json:"charge_on,omitempty"`
	// Abandoned is what becomes of a reservation that nobody settles, "charge" or
	// "give_back", where the rule says something about reservations.
	Abandoned string `json:"abandoned,omitempty"`

	check headgate.Check
}

// ExplainedLimit is one limit and, once it is known, its state.
type ExplainedLimit struct {
	Limit     string             `json:"limit"`
	Algorithm string             `json:"algorithm"`
	State     *ExplainedDecision `json:"state,omitempty"`
}

// ExplainedDecision is what one limit says of the request. Durations are in
// milliseconds, rounded up; RetryAfter is -1 if the cost can never fit.
type ExplainedDecision struct {
	Allowed    bool  `json:"allowed"`
	Remaining  int64 `json:"remaining"`
	RetryAfter int64 `json:"retry_after_ms"`
	ResetAfter int64 `json:"reset_after_ms"`
	// Soft says that the limit has reached the percentage from which to warn.
	Soft bool `json:"soft,omitempty"`
	// Source is who says so, if it is not the store: see [headgate.Source].
	Source string `json:"source,omitempty"`
}

// ExplainedVerdict is what all limits together say.
type ExplainedVerdict struct {
	Allowed bool `json:"allowed"`
	// Rule and Limit are what decides; empty if no rule binds the request.
	Rule       string `json:"rule,omitempty"`
	Limit      string `json:"limit,omitempty"`
	RetryAfter int64  `json:"retry_after_ms"`
}

// Explain says what [Set.Decide] does with the request, and why. It takes its
// time, and is not for the path of requests.
func (s *Set) Explain(d Descriptor, cost int64) Explanation {
	e := Explanation{Cost: max(cost, 1), Rules: []ExplainedRule{}, Entries: s.explainEntries(d)}
	d = s.known(d)
	out, err := s.decide(d, cost, nil, true)
	bound := out.Checks
	if err != nil {
		e.Error = headgate.Text(err)
	}
	if out.Denied != nil {
		e.Denied = &ExplainedList{out.Denied.Name, out.Denied.Pos}
	}
	if out.Allowed != nil {
		e.Allowed = &ExplainedList{out.Allowed.Name, out.Allowed.Pos}
	}
	for i := range s.rules {
		r := s.explainRule(int32(i), d, cost)
		switch {
		case e.Denied != nil:
			r = ExplainedRule{Rule: r.Rule, Pos: r.Pos, Why: fmt.Sprintf("the entry %q of the deny list answers first", e.Denied.Name)}
		case e.Allowed != nil:
			r = ExplainedRule{Rule: r.Rule, Pos: r.Pos, Why: fmt.Sprintf("the entry %q of the allow list answers first", e.Allowed.Name)}
		}
		if r.Binds {
			if by := s.replacing(&r.check, bound); by != "" {
				r = ExplainedRule{Rule: r.Rule, Pos: r.Pos, Enforce: r.Enforce, Why: fmt.Sprintf("the rule %q binds the request and replaces it", by)}
			}
		}
		e.Rules = append(e.Rules, r)
		if !r.Binds {
			continue
		}
		if old, ok := s.oldCheck(&s.compiled[i], d, &r.check); ok {
			r.check, r.Key, r.Shadow, r.OldHashKey = old, old.Key, old.Shadow, true
			r.Limits = slices.Clone(r.Limits)
			e.Rules = append(e.Rules, r)
		}
	}
	return e
}

// Bind notes that the rule binds the request by the check.
func (r *ExplainedRule) Bind(c headgate.Check) {
	r.Binds, r.check = true, c
	r.Key, r.Cost, r.Shadow = c.Key, c.Units(), c.Shadow
	limits := c.Rule.Limits()
	for i := range limits {
		r.Limits = append(r.Limits, ExplainedLimit{Limit: limits[i].String(), Algorithm: limits[i].Algorithm.String()})
	}
}

// Checks are those that [Set.Decide] makes of the request: what to ask a store,
// by headgate.OpPeek, for [Explanation.Observe].
func (e *Explanation) Checks() []headgate.Check {
	var checks []headgate.Check
	for i := range e.Rules {
		if e.Rules[i].Binds && e.Rules[i].check.Rule != nil {
			checks = append(checks, e.Rules[i].check)
		}
	}
	return checks
}

// Observe adds what a store says of [Explanation.Checks].
func (e *Explanation) Observe(s *Set, decisions []headgate.Decision) {
	v := headgate.NewVerdict(decisions)
	e.Verdict = &ExplainedVerdict{Allowed: v.Allowed && e.Denied == nil, RetryAfter: milliseconds(v.RetryAfter)}
	if e.Denied != nil {
		e.Verdict.RetryAfter = -1
	}
	if d := v.Deciding(); d != nil && d.Rule != nil {
		e.Verdict.Rule, e.Verdict.Limit = d.Rule.Name(), d.Limit.String()
	}
	for i := range e.Rules {
		r := &e.Rules[i]
		if !r.Binds {
			continue
		}
		for j := range r.Limits {
			if len(decisions) == 0 {
				return
			}
			d := &decisions[0]
			decisions = decisions[1:]
			r.Limits[j].State = &ExplainedDecision{d.Allowed, d.Remaining, milliseconds(d.RetryAfter), milliseconds(d.ResetAfter), s.Soft(d), ""}
			if d.Source != headgate.SourceStore {
				r.Limits[j].State.Source = d.Source.String()
			}
		}
	}
}

// milliseconds rounds up, and keeps headgate.Never.
func milliseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func (s *Set) explainEntries(d Descriptor) []ExplainedEntry {
	entries := []ExplainedEntry{}
	var known Descriptor
	if s.subjects != nil {
		known = s.subjects.find(d)
	}
	for _, e := range known {
		given, ok := d.Get(e.Name)
		entries = append(entries, s.explainEntry(e, ExplainedEntry{Known: true, Replaced: ok && given != e.Value}))
	}
	for i, e := range d {
		_, replaced := known.Get(e.Name)
		_, again := d[:i].Get(e.Name)
		if !replaced && !again && e.Value != "" {
			entries = append(entries, s.explainEntry(e, ExplainedEntry{}))
		}
	}
	return entries
}

func (s *Set) explainEntry(e Entry, to ExplainedEntry) ExplainedEntry {
	to.Name, to.Value, to.Secret = e.Name, e.Value, s.secret(e.Name)
	if to.Secret {
		to.Value = s.Hash(e.Name, e.Value)
	}
	return to
}

func (s *Set) explainRule(i int32, d Descriptor, cost int64) ExplainedRule {
	r, c := &s.rules[i], &s.compiled[i]
	e := ExplainedRule{Rule: r.Name, Pos: r.Pos, Enforce: r.Enforced(), Replaces: r.Replaces, Soft: r.Soft, OnError: r.OnError.String(), DenyCache: r.DenyCache.String()}
	if r.Consistency != headgate.Strict {
		e.Consistency = r.Consistency.String()
	}
	if len(r.GiveBackOn) > 0 {
		e.GiveBackOn = r.GiveBackOn.String()
	}
	if len(r.ChargeOn) > 0 {
		e.ChargeOn = r.ChargeOn.String()
	}
	if r.Reservation.GiveBack {
		e.Abandoned = "give_back"
	} else if r.Reservation.For != 0 {
		e.Abandoned = "charge"
	}
	if r.Direct {
		e.Why = "it is reached by its name only"
		return e
	}
	demands := s.demands()[i]
	for j := range demands {
		if !demands[j].holds(d) {
			e.Why = s.unmet(&demands[j], d)
			return e
		}
	}
	for _, p := range r.Per {
		if _, ok := d.Get(p.Entry); !ok {
			e.Why = fmt.Sprintf("it counts by %s, which is absent", p.Entry)
			return e
		}
		e.Hashed = e.Hashed || s.secret(p.Entry)
	}
	check, binds, err := s.check(c, d, cost)
	if !binds || err != nil {
		e.Hashed = false
		switch {
		case err != nil:
			e.Why = headgate.Text(err)
		case s.limits(c, d) == nil:
			value, ok := d.Get(r.Tariff.Entry)
			e.Why = fmt.Sprintf("it has no limits for requests without %s, nor for all others", r.Tariff.Entry)
			if ok {
				e.Why = fmt.Sprintf("it has no limits for the %s %s, nor for all others", r.Tariff.Entry, s.shown(r.Tariff.Entry, value))
			}
		default:
			e.Why = "the request costs it nothing"
		}
		return e
	}
	e.Bind(check)
	e.Quota = r.Mode == ModeQuota
	if c.more == nil {
		return e
	}
	if j, found := c.more.overrides.find(d, s.now); found {
		e.Override = j + 1
	} else if r.Tariff != nil {
		e.Tier = s.tier(r.Tariff, d)
	}
	return e
}

// shown is a value for people: the hash of it, if it is secret.
func (s *Set) shown(entry, value string) string {
	if s.secret(entry) {
		return "(secret, " + HashMark + s.Hash(entry, value) + ")"
	}
	return quote(value)
}

// unmet says what the request has and what the demand asks for.
func (s *Set) unmet(c *demand, d Descriptor) string {
	has := c.Entry + " is absent"
	if value, ok := d.Get(c.Entry); ok {
		has = fmt.Sprintf("%s is %s", c.Entry, s.shown(c.Entry, value))
	}
	switch {
	case c.bare() && c.Not:
		return has + ", must be absent"
	case c.bare():
		return has + ", must be present"
	}
	verb := "must be"
	if c.Not {
		verb = "must not be"
	}
	if c.size() > 1 {
		verb += " one of"
	}
	return fmt.Sprintf("%s, %s %s", has, verb, c.some(s.secret(c.Entry)))
}
