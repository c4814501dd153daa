package httpapi

import (
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/decide"
)

// serveRules answers with the policy in force.
func (h *Handler) serveRules(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, h.rulesOf(h.decider.Policy()))
}

// shownPolicy is a policy in the form for callers. It has everything except what may be secret: a
// condition shows its entry and the number of its values.
type shownPolicy struct {
	Version  int64           `json:"version"`
	Hash     string          `json:"hash"`
	Rules    []shownRule     `json:"rules"`
	Allow    []shownEntry    `json:"allow"`
	Deny     []shownEntry    `json:"deny"`
	Subjects *shownSubjects  `json:"subjects,omitempty"`
	Ignore   []policy.Ignore `json:"ignore,omitempty"`
}

type shownRule struct {
	Name   string           `json:"name"`
	Direct bool             `json:"direct"`
	Match  []shownCondition `json:"match"`
	Per    []string         `json:"per"`
	Counts string           `json:"counts,omitempty"`
	Cost   int64            `json:"cost"`
	Costs  *shownCosts      `json:"costs,omitempty"`
	// Limits are the limits of the rule. With a tariff, they are those for values without a tier, or
	// else those of the first tier.
	Limits      []shownLimit      `json:"limits"`
	Tag         string            `json:"tag,omitempty"`
	Tariff      *shownTariff      `json:"tariff,omitempty"`
	InProgress  *shownInProgress  `json:"in_progress,omitempty"`
	Overrides   []shownOverride   `json:"overrides,omitempty"`
	Soft        int               `json:"soft,omitempty"`
	Mode        string            `json:"mode"`
	Enforce     int               `json:"enforce"`
	GiveBackOn  []string          `json:"give_back_on,omitempty"`
	ChargeOn    []string          `json:"charge_on,omitempty"`
	Reservation *shownReservation `json:"reservation,omitempty"`
	OnError     string            `json:"on_store_error,omitempty"`
	Consistency string            `json:"consistency,omitempty"`
	Scope       string            `json:"scope,omitempty"`
	DenyCache   string            `json:"deny_cache,omitempty"`
	Replaces    []string          `json:"replaces,omitempty"`
	Ignore      []policy.Ignore   `json:"ignore,omitempty"`
	Pos         policy.Position   `json:"pos,omitzero"`
}

type shownCondition struct {
	Entry    string `json:"entry"`
	Not      bool   `json:"not"`
	Values   int    `json:"values"`
	Prefixes int    `json:"prefixes"`
	Networks int    `json:"networks"`
	Hashes   int    `json:"hashes"`
}

// shownLimit has the fields that [newText] encodes for decisions.
type shownLimit struct {
	Limit     string `json:"limit"`
	Algorithm string `json:"algorithm"`
	Capacity  int64  `json:"capacity"`
	PeriodMS  int64  `json:"period_ms"`
}

// shownCosts has either Values and the cost of all Other values, or a measure: Per and Max.
type shownCosts struct {
	Entry  string           `json:"entry"`
	Values map[string]int64 `json:"values,omitempty"`
	Other  *int64           `json:"other,omitempty"`
	Per    int64            `json:"per,omitempty"`
	Max    int64            `json:"max,omitempty"`
}

type shownTariff struct {
	Entry string      `json:"entry"`
	Tiers []shownTier `json:"tiers"`
}

type shownTier struct {
	Tier   string       `json:"tier"`
	Limits []shownLimit `json:"limits"`
}

// shownInProgress has the limits by the values of an entry, if there is one. Limit is then for all
// other values.
type shownInProgress struct {
	Limit  int64            `json:"limit"`
	Entry  string           `json:"entry,omitempty"`
	Values map[string]int64 `json:"values,omitempty"`
	WaitMS int64            `json:"wait_ms"`
	Queue  int              `json:"queue"`
	Shared bool             `json:"shared"`
	TTLMS  int64            `json:"ttl_ms,omitempty"`
}

type shownOverride struct {
	Match      []shownCondition `json:"match"`
	Limits     []shownLimit     `json:"limits"`
	InProgress int64            `json:"in_progress,omitempty"`
	Until      time.Time        `json:"until,omitzero"`
	Pos        policy.Position  `json:"pos,omitzero"`
}

type shownEntry struct {
	Name  string           `json:"name"`
	Match []shownCondition `json:"match"`
	Until time.Time        `json:"until,omitzero"`
	// Replaces is [policy.ListEntry.Replaces].
	Replaces []string        `json:"replaces,omitempty"`
	Pos      policy.Position `json:"pos,omitzero"`
}

type shownReservation struct {
	ForMS    int64 `json:"for_ms"`
	GiveBack bool  `json:"give_back"`
	Typical  bool  `json:"typical,omitempty"`
}

type shownSubjects struct {
	By    string `json:"by"`
	Rows  int    `json:"rows"`
	Other bool   `json:"other"`
	File  string `json:"file,omitempty"`
}

// rulesText is the whole policy, encoded. It is encoded once, at the first request for it, because
// a large policy takes a while and anybody may ask.
type rulesText struct {
	policy decide.Policy
	text   func() []byte
}

func (h *Handler) rulesOf(p decide.Policy) []byte {
	now := h.rules.Load()
	if now == nil || now.policy != p {
		now = &rulesText{p, sync.OnceValue(func() []byte { return encodeRules(p) })}
		h.rules.Store(now)
	}
	return now.text()
}

func encodeRules(from decide.Policy) []byte {
	set := from.Set
	p := shownPolicy{
		Version: from.Version, Hash: from.Hash, Rules: []shownRule{},
		Allow: showList(set.Allowed()), Deny: showList(set.Denied()), Ignore: set.Ignored(),
	}
	rules := set.Rules()
	for i := range rules {
		p.Rules = append(p.Rules, showRule(set, &rules[i]))
	}
	if table := set.Subjects(); table != nil {
		p.Subjects = &shownSubjects{table.By, len(table.Table), len(table.Other) > 0, table.File}
	}
	return encode(p)
}

func showRule(set *policy.Set, r *policy.Rule) shownRule {
	shown := shownRule{
		Name: r.Name, Direct: r.Direct, Match: showConditions(r.Match), Per: []string{}, Cost: max(r.Cost, 1),
		Limits: showLimits(r.Limits), Tag: r.Limits.Tag(), Soft: r.Soft, Mode: r.Mode.String(), Enforce: r.Enforced(),
		GiveBackOn: showStatuses(r.GiveBackOn), ChargeOn: showStatuses(r.ChargeOn), OnError: r.OnError.String(), Consistency: showConsistency(r.Consistency), Scope: showScope(r.Scope), DenyCache: r.DenyCache.String(), Replaces: r.Replaces, Ignore: r.Ignore, Pos: r.Pos,
	}
	if r.Counts != models.Requests {
		shown.Counts = r.Counts.String()
	}
	if p := r.InProgress; p != nil {
		shown.InProgress = showInProgress(set, p)
	}
	for _, part := range r.Per {
		shown.Per = append(shown.Per, part.String())
	}
	if c := r.Costs; c != nil {
		shown.Costs = &shownCosts{Entry: c.Entry, Per: c.Per, Max: c.Max}
		if c.Per == 0 {
			shown.Costs.Other, shown.Costs.Values = &c.Other, make(map[string]int64, len(c.Values))
			for value, cost := range c.Values {
				shown.Costs.Values[unsecret(set, c.Entry, value)] = cost
			}
		}
	}
	if t := r.Tariff; t != nil {
		shown.Tariff = &shownTariff{Entry: t.Entry}
		for i := range t.Tiers {
			shown.Tariff.Tiers = append(shown.Tariff.Tiers, shownTier{unsecret(set, t.Entry, t.Tiers[i].Value), showLimits(t.Tiers[i].Limits)})
		}
		if t.Other != nil {
			shown.Tariff.Tiers = append(shown.Tariff.Tiers, shownTier{"*", showLimits(t.Other)})
		}
	}
	for i := range r.Overrides {
		o := &r.Overrides[i]
		shown.Overrides = append(shown.Overrides, shownOverride{showConditions(o.Match), showLimits(o.Limits), o.InProgress, o.Until, o.Pos})
	}
	if r.Reservation != (policy.Reservation{}) {
		terms := headgate.Terms{For: r.Reservation.For}
		shown.Reservation = &shownReservation{terms.Term().Milliseconds(), r.Reservation.GiveBack, r.Reservation.Typical}
	}
	return shown
}

func showInProgress(set *policy.Set, p *policy.InProgress) *shownInProgress {
	shown := &shownInProgress{Limit: p.Limit, Entry: p.Entry, WaitMS: p.Wait.Milliseconds(), Queue: p.Waiting(), Shared: p.Shared}
	if p.Shared {
		shown.TTLMS = p.Term().Milliseconds()
	}
	for value, limit := range p.Values {
		if shown.Values == nil {
			shown.Values = make(map[string]int64, len(p.Values))
		}
		shown.Values[unsecret(set, p.Entry, value)] = limit
	}
	return shown
}

// unsecret returns the value of an entry, or its hash if the entry is secret.
func unsecret(set *policy.Set, entry, value string) string {
	if set.Secret(entry) {
		return policy.HashMark + set.Hash(entry, value)
	}
	return value
}

func showList(list []policy.ListEntry) []shownEntry {
	shown := make([]shownEntry, len(list))
	for i := range list {
		e := &list[i]
		shown[i] = shownEntry{e.Name, showConditions(e.Match), e.Until, e.Replaces, e.Pos}
	}
	return shown
}

// showConditions returns the entries of the conditions and the number of their values, but not the
// values, because they may be API keys.
func showConditions(conditions []policy.Condition) []shownCondition {
	shown := make([]shownCondition, len(conditions))
	for i := range conditions {
		c := &conditions[i]
		shown[i] = shownCondition{c.Entry, c.Not, len(c.Equals), len(c.Prefixes), len(c.Networks), len(c.Hashes)}
	}
	return shown
}

func showLimits(r *headgate.Rule) []shownLimit {
	limits := r.Limits()
	shown := make([]shownLimit, len(limits))
	for i := range limits {
		l := &limits[i]
		shown[i] = shownLimit{l.String(), l.Algorithm.String(), l.Capacity(), decide.Millis(time.Duration(l.Micros()) * time.Microsecond)}
	}
	return shown
}

func showStatuses(statuses policy.Statuses) []string {
	var shown []string
	for _, s := range statuses {
		shown = append(shown, s.String())
	}
	return shown
}

// showConsistency returns "" for the default consistency, which is strict.
func showConsistency(c headgate.Consistency) string {
	if c == headgate.Strict {
		return ""
	}
	return c.String()
}

// showScope returns "" for the default scope, which is regional.
func showScope(s headgate.Scope) string {
	if s == headgate.Regional {
		return ""
	}
	return s.String()
}
