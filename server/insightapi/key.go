package insightapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/telemetry/insight"
)

// KeyReport is the answer to GET key.
type KeyReport struct {
	Rule string       `json:"rule"`
	Key  insight.Name `json:"key"`
	// Match is the text for "match" in the policy file with which an override applies to this key
	// alone. It is "" if the key is not enough to tell.
	Match string `json:"match,omitempty"`
	// States are the states of the rule's limits, and of the limits of other rules that count by the
	// same entries.
	States []State `json:"states"`
	// Counts are the counts of the key, by rule.
	Counts []KeyCounts `json:"counts"`
	// Denials are the last denials of the key, the newest first.
	Denials   []insight.Denial `json:"denials"`
	Instances []Instance       `json:"instances"`
}

// KeyCounts are the counts of a key under one rule within the last two hours; see [insight.Key].
type KeyCounts struct {
	Rule   string       `json:"rule"`
	Use    *insight.Key `json:"use,omitempty"`
	Denied *insight.Key `json:"denied,omitempty"`
	Shadow *insight.Key `json:"shadow,omitempty"`
}

const (
	keyDenials  = 50
	alikeRules  = 16
	stateWithin = 2 * time.Second
)

// keyOf returns the rule of that name and the key with that id.
func (h *Handler) keyOf(rule, id string) (*policy.Rule, insight.Name, *failure) {
	key, err := insight.ParseID(id)
	if err != nil || len(key.Raw) > headgate.MaxKey {
		return nil, key, wrong(http.StatusBadRequest, "key must be the id of a key")
	}
	of := h.o.Policy().Rule(rule)
	if of == nil {
		return nil, key, wrong(http.StatusNotFound, "no rule of this name is in force")
	}
	return of, key, nil
}

func (h *Handler) key(q *query) (any, *failure) {
	if q.local {
		// Other instances are asked for denials only, never for the state of a key.
		return nil, wrong(http.StatusBadRequest, "the state of a key is asked of one instance only")
	}
	rule, key, problem := h.keyOf(q.values.Get("rule"), q.values.Get("key"))
	if problem != nil {
		return nil, problem
	}
	out := KeyReport{Rule: rule.Name, Key: key, States: []State{}, Counts: []KeyCounts{}}
	ctx, cancel := context.WithTimeout(q.ctx, stateWithin)
	defer cancel()
	p := h.o.Policy()
	if conditions, ok := p.Set.KeyMatch(rule.Name, key.Raw); ok {
		out.Match = config.MatchText(conditions)
	}
	for _, one := range rulesByEntries(p, rule) {
		counts := h.counts(one.Name, key.Raw)
		tier := q.values.Get("tier")
		if of := counts.tier(); of != "" {
			tier = of
		}
		known := counts.Use != nil || counts.Denied != nil || counts.Shadow != nil
		if known {
			out.Counts = append(out.Counts, counts)
		}
		states := h.states(ctx, p, one, key.Raw, tier)
		if one == rule || known || slices.ContainsFunc(states, func(s State) bool { return s.Remaining < s.Capacity && s.Error == "" }) {
			out.States = append(out.States, states...)
		} // Other rules count by the same entries, but may never have counted this key.
	}
	denied := *q
	denied.path, denied.limit, denied.values = "denials", keyDenials, cloneValues(q.values)
	denied.values.Del("after")
	denied.values.Del("rule")
	answer, _ := h.denials(&denied)
	found, _ := answer.(Denials)
	slices.Reverse(found.Denials)
	out.Denials, out.Instances = found.Denials, found.Instances
	return out, nil
}

// rulesByEntries returns the rule, and other rules that count by the same entries.
func rulesByEntries(p decide.Policy, rule *policy.Rule) []*policy.Rule {
	same := []*policy.Rule{rule}
	entries := func(r *policy.Rule) (names []string) {
		for i := range r.Per {
			names = append(names, r.Per[i].Entry)
		}
		return names
	}
	if len(rule.Per) == 0 {
		return same
	}
	all := p.Rules()
	for i := range all {
		if r := &all[i]; r.Name != rule.Name && len(same) < alikeRules && slices.Equal(entries(r), entries(rule)) {
			same = append(same, r)
		}
	}
	return same
}

// counts returns what was counted for the key under the rule.
func (h *Handler) counts(rule, key string) KeyCounts {
	c := KeyCounts{Rule: rule}
	r, ok := h.o.Recorder.Rule(rule, insight.Kept)
	if !ok {
		return c
	}
	find := func(t insight.Top) *insight.Key {
		if i := slices.IndexFunc(t.Keys, func(k insight.Key) bool { return k.Key.Raw == key }); i >= 0 {
			return &t.Keys[i]
		}
		return nil
	}
	c.Use, c.Denied, c.Shadow = find(r.Use), find(r.Denied), find(r.Shadow)
	return c
}

func (c *KeyCounts) tier() string {
	for _, k := range []*insight.Key{c.Denied, c.Use, c.Shadow} {
		if k != nil && k.Tier != "" {
			return k.Tier
		}
	}
	return ""
}

// reset forgets what a key has used under a rule. As a safeguard, the caller must repeat the name
// of the rule in "confirm".
func (h *Handler) reset(q *query) (any, *failure) {
	var body struct {
		Rule    string `json:"rule"`
		Key     string `json:"key"`
		Confirm string `json:"confirm"`
	}
	if err := q.decode(&body); err != nil {
		return nil, wrong(http.StatusBadRequest, "the body must be an object with rule, key (its id) and confirm")
	}
	rule, key, problem := h.keyOf(body.Rule, body.Key)
	if problem != nil {
		return nil, problem
	}
	if body.Confirm != rule.Name {
		return nil, wrong(http.StatusUnprocessableEntity, "confirm must repeat the name of the rule: what the key has used is forgotten for good")
	}
	entry := Entry{Who: q.r.RemoteAddr, What: "reset", Detail: "rule " + rule.Name + ", key " + key.Text(), OK: true}
	ctx, cancel := context.WithTimeout(q.ctx, stateWithin)
	defer cancel()
	if rule.Limits == nil {
		return nil, wrong(http.StatusUnprocessableEntity, "the rule has no limits that a key uses: it bounds what is in progress, see the permits")
	}
	// All limits of a rule are counted under its name, whatever the tier.
	_, err := h.o.Take(ctx, headgate.OpReset, []headgate.Check{{Rule: rule.Limits, Key: key.Raw, Cost: 1}})
	if err != nil {
		entry.OK = false
		h.o.Audit.Add(entry)
		status := http.StatusServiceUnavailable
		if errors.Is(err, headgate.ErrInvalid) {
			status = http.StatusUnprocessableEntity
		}
		return nil, wrong(status, errtext.Text(err))
	}
	h.o.Audit.Add(entry)
	return struct {
		Reset []string `json:"reset"`
	}{[]string{rule.Name}}, nil
}
