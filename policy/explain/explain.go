// Package explain says for people why a policy decides a request as it does.
//
// [Request] makes an [Explanation] of a [policy.Set] and the facts about a request: which
// rules bind it, under which keys and with which limits, and why the others do not. To
// show where the counters stand as well, ask a store for [Explanation.Checks] with
// headgate.OpPeek, which charges nothing, and hand the decisions to
// [Explanation.Observe].
//
// An explanation holds the hashes of secret values, never the values. It takes much
// longer to make than a decision, and is not for the path of requests.
package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/closest"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
)

// Request says what [policy.Set.DecideUsage] does with a request, and why.
func Request(s *policy.Set, d policy.Descriptor, cost int64, u *models.Usage) Explanation {
	e := Explanation{Cost: max(cost, 1), Entries: entries(s, d)}
	out, err := s.DecideUsage(d, cost, u, nil)
	switch {
	case err != nil:
		e.Error = errtext.Text(err)
	case out.Denied != nil:
		e.Denied = &Listed{out.Denied.Name, out.Denied.Pos}
		e.Rules = unasked(s, fmt.Sprintf("the entry %q of the deny list answers first", out.Denied.Name))
		return e
	case out.Allowed != nil:
		e.Allowed = &Listed{out.Allowed.Name, out.Allowed.Pos}
		e.Rules = unasked(s, fmt.Sprintf("the entry %q of the allow list answers first", out.Allowed.Name))
		return e
	}
	e.Rules = []Rule{}
	d = append(slices.Clone(s.Known(d)), d...)
	for _, b := range s.Inspect(d, cost, u) {
		r := describe(b.Rule)
		if !b.Binds() {
			r.Why = why(s, d, &b)
			e.Rules = append(e.Rules, r)
			continue
		}
		r.Override, r.Tier, r.Quota = b.Override, b.Tier, b.Rule.Mode == policy.ModeQuota
		r.Hashed = slices.ContainsFunc(b.Rule.Per, func(p policy.Part) bool { return s.Secret(p.Entry) })
		if len(b.Bounds) > 0 {
			r.bound(&b.Bounds[0])
		}
		if len(b.Checks) == 0 {
			e.Rules = append(e.Rules, r)
		}
		for i, c := range b.Checks {
			one := r
			one.OldHashKey = i > 0
			if one.OldHashKey {
				one.InProgress = nil
			}
			one.Bind(c)
			e.Rules = append(e.Rules, one)
		}
	}
	return e
}

// unasked has every rule, none of which is looked at.
func unasked(s *policy.Set, why string) []Rule {
	rules := make([]Rule, len(s.Rules()))
	for i := range rules {
		r := &s.Rules()[i]
		rules[i] = Rule{Rule: r.Name, Pos: r.Pos, Why: why}
	}
	return rules
}

// describe is what there is to say of a rule, whatever the request.
func describe(r *policy.Rule) Rule {
	e := Rule{
		Rule: r.Name, Pos: r.Pos, Enforce: r.Enforced(), Replaces: r.Replaces, Soft: r.Soft,
		OnError: r.OnError.String(), DenyCache: r.DenyCache.String(),
	}
	if r.Consistency != headgate.Strict {
		e.Consistency = r.Consistency.String()
	}
	if r.Scope != headgate.Regional {
		e.Scope = r.Scope.String()
	}
	if len(r.GiveBackOn) > 0 {
		e.GiveBackOn = r.GiveBackOn.String()
	}
	if len(r.ChargeOn) > 0 {
		e.ChargeOn = r.ChargeOn.String()
	}
	switch {
	case r.Reservation.GiveBack:
		e.Abandoned = "give_back"
	case r.Reservation.For != 0:
		e.Abandoned = "charge"
	}
	return e
}

// why says why a rule does not bind the request. The descriptor has the entries of the
// table of subjects.
func why(s *policy.Set, d policy.Descriptor, b *policy.Binding) string {
	switch {
	case b.Rule.Direct:
		return "it is reached by its name only"
	case b.Unmet != nil:
		return unmet(s, b.Unmet, d)
	case b.Lacks != "":
		return fmt.Sprintf("it counts by %s, which is absent", b.Lacks)
	case b.Err != nil:
		return errtext.Text(b.Err)
	case b.NoTier:
		var entry string
		if b.Rule.Tariff != nil {
			entry = b.Rule.Tariff.Entry
		} else {
			entry = b.Rule.InProgress.Entry
		}
		value, ok := d.Get(entry)
		if !ok {
			return fmt.Sprintf("it has no limits for requests without %s, nor for all others", entry)
		}
		return fmt.Sprintf("it has no limits for the %s %s, nor for all others", entry, shown(s, entry, value))
	case b.ReplacedBy != "":
		return fmt.Sprintf("the rule %q binds the request and replaces it", b.ReplacedBy)
	}
	if b.Rule.Counts != models.Requests {
		return fmt.Sprintf("it counts %v, and nothing says that the request uses any", b.Rule.Counts)
	}
	return "the request costs it nothing"
}

// unmet says what the request has and what the condition asks for.
func unmet(s *policy.Set, c *policy.Condition, d policy.Descriptor) string {
	has := c.Entry + " is absent"
	if value, ok := d.Get(c.Entry); ok {
		has = fmt.Sprintf("%s is %s", c.Entry, shown(s, c.Entry, value))
	}
	switch {
	case c.Size() == 0 && c.Not:
		return has + ", must be absent"
	case c.Size() == 0:
		return has + ", must be present"
	}
	verb := "must be"
	if c.Not {
		verb = "must not be"
	}
	if c.Size() > 1 {
		verb += " one of"
	}
	return fmt.Sprintf("%s, %s %s", has, verb, c.Describe(s.Secret(c.Entry)))
}

// shown is a value for people: its hash, if the entry is secret.
func shown(s *policy.Set, entry, value string) string {
	if s.Secret(entry) {
		return "(secret, " + policy.HashMark + s.Hash(entry, value) + ")"
	}
	return policy.Quote(value)
}

// entries are the facts about the request.
func entries(s *policy.Set, d policy.Descriptor) []Entry {
	all := []Entry{}
	known, looked := s.Known(d), s.Entries()
	lacking := slices.DeleteFunc(slices.Clone(looked), func(name string) bool {
		_, has := d.Get(name)
		_, is := known.Get(name)
		return has || is
	})
	add := func(e policy.Entry, to Entry) {
		name := e.Name
		if _, used := slices.BinarySearch(looked, name); !used {
			if to.Unused, to.Meant = true, closest.Word(name, lacking); to.Meant != "" {
				name = to.Meant // whose value may be secret
			}
		}
		to.Name, to.Value, to.Secret = e.Name, e.Value, s.Secret(name) || s.Secret(e.Name)
		if to.Secret {
			to.Value = s.Hash(name, e.Value)
		}
		all = append(all, to)
	}
	for _, e := range known {
		given, ok := d.Get(e.Name)
		add(e, Entry{Known: true, Replaced: ok && given != e.Value})
	}
	for i, e := range d {
		_, replaced := known.Get(e.Name)
		_, again := d[:i].Get(e.Name)
		if !replaced && !again && e.Value != "" {
			add(e, Entry{})
		}
	}
	return all
}

// Bind notes that the rule binds the request by the check: it sets Binds, Key, Cost, Shadow
// and Limits, and has the check among [Explanation.Checks].
func (r *Rule) Bind(c headgate.Check) {
	r.Binds, r.check = true, c
	r.Key, r.Cost, r.Shadow = c.Key, c.Units(), c.Shadow
	limits := c.Rule.Limits()
	r.Limits = nil
	for i := range limits {
		r.Limits = append(r.Limits, Limit{Limit: limits[i].String(), Algorithm: limits[i].Algorithm.String()})
	}
}

// bound notes that the rule binds the request by a bound on what is in progress.
func (r *Rule) bound(b *policy.Bound) {
	p := b.Rule.InProgress
	r.Binds, r.Key, r.Cost, r.Shadow = true, b.Key, b.Units, b.Shadow
	r.InProgress = &InProgress{Limit: b.Limit, Cost: b.Units, Wait: p.Wait.Milliseconds(), Queue: p.Waiting(), Shared: p.Shared}
	if p.Shared {
		r.InProgress.TTL = p.Term().Milliseconds()
	}
}

// Checks returns the checks that [policy.Set.Decide] makes of the request, for a store to
// be asked about.
func (e *Explanation) Checks() []headgate.Check {
	var checks []headgate.Check
	for i := range e.Rules {
		if e.Rules[i].Binds && e.Rules[i].check.Rule != nil {
			checks = append(checks, e.Rules[i].check)
		}
	}
	return checks
}

// Observe adds what a store has decided about [Explanation.Checks]. The set is the one that
// the explanation was made of.
func (e *Explanation) Observe(s *policy.Set, decisions []headgate.Decision) {
	v := headgate.NewVerdict(decisions)
	e.Verdict = &Verdict{Allowed: v.Allowed && e.Denied == nil, RetryAfter: milliseconds(v.RetryAfter)}
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
			r.Limits[j].State = &Decision{d.Allowed, d.Remaining, milliseconds(d.RetryAfter), milliseconds(d.ResetAfter), s.Soft(d), ""}
			if d.Source != headgate.SourceStore {
				r.Limits[j].State.Source = d.Source.String()
			}
		}
	}
}

// Lose sets WithoutStore, once [Explanation.Observe] was called. otherwise is what whoever asks the
// store does for rules that do not say it; [headgate.OnErrorReturn] means that it is not known.
func (e *Explanation) Lose(otherwise headgate.OnError) {
	// The later one goes before the earlier ones. What is not known may be a denial.
	order := []headgate.OnError{headgate.OnErrorAllow, headgate.OnErrorLocal, headgate.OnErrorReturn, headgate.OnErrorDeny}
	e.WithoutStore = nil
	rank := -1
	for i := range e.Rules {
		r := &e.Rules[i]
		if !r.Binds || r.check.Rule == nil {
			continue
		}
		if e.WithoutStore == nil {
			e.WithoutStore = &Outage{OnError: headgate.OnErrorAllow.String()}
		}
		if r.Shadow {
			continue
		}
		does := r.check.OnError
		if does == headgate.OnErrorReturn {
			does = otherwise
		}
		if n := slices.Index(order, does); n > rank {
			rank = n
			*e.WithoutStore = Outage{does.String(), r.Rule, r.check.OnError == headgate.OnErrorReturn}
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

// Explanation says why a policy decides a request as it does: for people ([Explanation.String])
// and, as JSON, for programs.
type Explanation struct {
	// Entries are the facts about the request: those of the table of subjects first, then
	// those of the request that the table does not replace.
	Entries []Entry `json:"entries"`
	// Cost is the request's own cost.
	Cost int64 `json:"cost"`
	// Steps says where each entry of an ordered descriptor leads, in a policy with nested
	// limits: see package nested.
	Steps []Step `json:"steps,omitempty"`
	// Denied and Allowed are the entry of the deny list or of the allow list that answers
	// the request; no rule is looked at then. In a policy with nested limits they are the
	// limit that admits nothing, or everything.
	Denied  *Listed `json:"denied,omitempty"`
	Allowed *Listed `json:"allowed,omitempty"`
	// Rules has every rule, in the order of the policy. A rule that binds the request
	// under the old hash key too is there twice.
	Rules []Rule `json:"rules"`
	// Error says why the request cannot be decided at all.
	Error string `json:"error,omitempty"`
	// Verdict is the verdict of all limits; nil until [Explanation.Observe] is called.
	Verdict *Verdict `json:"verdict,omitempty"`
	// WithoutStore says what would happen to the request while the store does not answer. It is nil
	// if no limit binds the request, or if the store always answers.
	WithoutStore *Outage `json:"without_store,omitempty"`
}

// Entry is one fact about the request.
type Entry struct {
	Name string `json:"name"`
	// Value is the entry's value or, if the entry is secret or Meant is, the hash of its value.
	Value string `json:"value"`
	// Secret says that Value is a hash.
	Secret bool `json:"secret,omitempty"`
	// Known says that the entry is from the table of subjects.
	Known bool `json:"from_subjects,omitempty"`
	// Replaced says that the request gave the entry another value, which the table of
	// subjects replaces.
	Replaced bool `json:"replaced,omitempty"`
	// Unused says that no rule and no list looks at the entry, nor the table of subjects: the
	// request is decided as if it were absent. In a policy with nested limits, Steps say what
	// each entry leads to.
	Unused bool `json:"unused,omitempty"`
	// Meant is the entry that was probably meant by an unused one: the policy looks at it, the
	// request does not have it, and its name is much the same. Empty if there is none.
	Meant string `json:"meant,omitempty"`
}

// Step says where one entry of an ordered descriptor leads.
type Step struct {
	// Entry is the entry's name.
	Entry string `json:"entry"`
	// Node is the path of the configuration's descriptor that the entry leads to; empty if
	// it leads nowhere.
	Node string `json:"node,omitempty"`
	// By is how the entry meets that descriptor: by its "value", by a "star", or by its
	// "key" alone.
	By  string          `json:"by,omitempty"`
	Pos policy.Position `json:"pos,omitzero"`
}

// Listed is an entry of the deny list or of the allow list.
type Listed struct {
	Name string          `json:"name"`
	Pos  policy.Position `json:"pos,omitzero"`
}

// Rule says what one rule does with the request.
type Rule struct {
	Rule string          `json:"rule"`
	Pos  policy.Position `json:"pos,omitzero"`
	// Binds says whether the rule binds the request. If not, only Why has a meaning among the
	// fields below.
	Binds bool `json:"binds"`
	// Why says why the rule does not bind the request.
	Why string `json:"why,omitempty"`
	// Key is the key that the request is counted under. Secret values in it are hashes.
	Key string `json:"key"`
	// Hashed says that a secret is part of the key.
	Hashed bool `json:"hashed,omitempty"`
	// OldHashKey says that the key was made with the old hash key: see
	// [policy.OldHashKey].
	OldHashKey bool `json:"old_hash_key,omitempty"`
	// Cost is how many units the request is charged.
	Cost int64 `json:"cost,omitempty"`
	// Tier is the value of the tariff's entry whose limits apply; "*" if those of all
	// others do.
	Tier string `json:"tier,omitempty"`
	// Override is the number, from 1, of the override whose limits apply.
	Override int `json:"override,omitempty"`
	// Limits are the limits that apply.
	Limits []Limit `json:"limits,omitempty"`
	// InProgress is the rule's bound on what is in progress under the key; nil if there is none.
	InProgress *InProgress `json:"in_progress,omitempty"`
	// Admits is "everything" or "nothing" for a nested limit that does not count.
	Admits string `json:"admits,omitempty"`
	// Depth is, for a nested limit, how many entries a descriptor must have to reach it.
	Depth int `json:"depth,omitempty"`
	// Replaces are the names of the rules, or of the nested limits, that this one
	// replaces. LimitName is the name by which a nested limit is replaced.
	Replaces  []string `json:"replaces,omitempty"`
	LimitName string   `json:"limit_name,omitempty"`
	// Shadow says that the rule counts the request and does not deny it.
	Shadow bool `json:"shadow,omitempty"`
	// Quota says that callers are told when the rule would have denied: see
	// [policy.ModeQuota].
	Quota bool `json:"quota,omitempty"`
	// Enforce is the percentage of keys for which the rule may deny.
	Enforce int `json:"enforce"`
	// Soft is the percentage of a limit from which the rule warns; zero if it does not.
	Soft int `json:"soft,omitempty"`
	// OnError is what happens to requests while the store does not answer; empty if the rule leaves
	// that to the server.
	OnError string `json:"on_store_error,omitempty"`
	// Consistency is how exactly the rule counts; empty if it counts strictly. DenyCache
	// is "on" or "off"; empty if the rule leaves that to the server.
	Consistency string `json:"consistency,omitempty"`
	// Scope is global if all regions together keep to the limits.
	Scope     string `json:"scope,omitempty"`
	DenyCache string `json:"deny_cache,omitempty"`
	// GiveBackOn are statuses: a request that ends with one of them gets its units back. ChargeOn
	// are statuses: only requests that end with one of them stay charged.
	GiveBackOn string `json:"give_back_on,omitempty"`
	ChargeOn   string `json:"charge_on,omitempty"`
	// Abandoned says what happens to a reservation that nobody settles: "charge" or "give_back". It
	// is empty if the rule has nothing about reservations.
	Abandoned string `json:"abandoned,omitempty"`

	check headgate.Check
}

// InProgress is a bound on what is in progress. Durations are in milliseconds.
type InProgress struct {
	// Limit is how many permits there are, and Cost how many the request takes.
	Limit int64 `json:"limit"`
	Cost  int64 `json:"cost"`
	// Wait is how long the request may wait for them, and Queue how many requests may wait for each
	// key in one process. Both are zero if a request is refused at once.
	Wait  int64 `json:"wait_ms,omitempty"`
	Queue int   `json:"queue,omitempty"`
	// Shared says that all processes that share the store count together. TTL is how long after a
	// process has died the store frees its permits.
	Shared bool  `json:"shared,omitempty"`
	TTL    int64 `json:"ttl_ms,omitempty"`
}

// Limit is one limit, with its state if a store was asked.
type Limit struct {
	Limit     string    `json:"limit"`
	Algorithm string    `json:"algorithm"`
	State     *Decision `json:"state,omitempty"`
}

// Decision is one limit's decision on the request. Durations are in milliseconds, rounded up;
// RetryAfter is -1 if the cost can never fit.
type Decision struct {
	Allowed    bool  `json:"allowed"`
	Remaining  int64 `json:"remaining"`
	RetryAfter int64 `json:"retry_after_ms"`
	ResetAfter int64 `json:"reset_after_ms"`
	// Soft says that the limit has reached the percentage from which the rule warns.
	Soft bool `json:"soft,omitempty"`
	// Source says who decided, if it was not the store; see [headgate.Source].
	Source string `json:"source,omitempty"`
}

// Verdict is the verdict of all limits. RetryAfter is in milliseconds, rounded up; -1 if the cost
// can never fit, or if the deny list denies the request.
type Verdict struct {
	Allowed bool `json:"allowed"`
	// Rule and Limit are the rule and the limit that decide; empty if no rule binds the
	// request.
	Rule       string `json:"rule,omitempty"`
	Limit      string `json:"limit,omitempty"`
	RetryAfter int64  `json:"retry_after_ms"`
}

// Outage says what happens to a request while the store does not answer. If several rules bind the
// request, deny comes before local, and local before allow. Rules in shadow do not matter.
type Outage struct {
	// OnError is "allow", "deny" or "local"; empty if that is left to whoever asks the store, and is
	// not known here.
	OnError string `json:"on_store_error,omitempty"`
	// Rule is the rule that decides it; empty if no rule that binds the request may deny it.
	Rule string `json:"rule,omitempty"`
	// Default says that the rule leaves it to whoever asks the store.
	Default bool `json:"default,omitempty"`
}
