package explain

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

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
	DenyCache   string `json:"deny_cache,omitempty"`
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
