package insightapi

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
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
	// Known is what the table of subjects has of the client, or "".
	Known string `json:"known,omitempty"`
	// Match is the text for "match" in the policy file with which an override applies to this key
	// alone. It is "" if the key is not enough to tell.
	Match string `json:"match,omitempty"`
	// Answers answer seven questions in words, in their order: who is limited, by which rule, why, since
	// when, is it us or the client, what would it need, and what has changed.
	Answers []Answer `json:"answers"`
	// States are the states of the rule's limits, and of the limits of other rules that count by the
	// same entries.
	States []State `json:"states"`
	// Counts are the counts of the key, by rule.
	Counts []insight.KeyCounts `json:"counts"`
	// Denials are the last denials of the key, the newest first.
	Denials []insight.Denial `json:"denials"`
	// Marks are what happened lately.
	Marks     []Mark     `json:"marks"`
	Instances []Instance `json:"instances"`
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
	rule, key, problem := h.keyOf(q.values.Get("rule"), q.values.Get("key"))
	if problem != nil {
		return nil, problem
	}
	p := h.o.Policy()
	rules := rulesByEntries(p, rule)
	// Other instances are asked for what they have counted, never for the state of a key.
	counts := make([]insight.KeyCounts, len(rules))
	for i, one := range rules {
		counts[i] = h.o.Recorder.Key(one.Name, key.Raw)
	}
	parts, instances := ask[[]insight.KeyCounts](h, q)
	if q.local {
		return h.whole(q, counts, nil)
	}
	for _, part := range parts {
		for i := range part {
			if j := slices.IndexFunc(counts, func(c insight.KeyCounts) bool { return c.Rule == part[i].Rule }); j >= 0 {
				counts[j].Merge(part[i])
			}
		}
	}
	out := KeyReport{Rule: rule.Name, Key: key, Known: known(p, rule.Name, key.Raw), States: []State{}, Counts: []insight.KeyCounts{}, Instances: instances}
	ctx, cancel := context.WithTimeout(q.ctx, stateWithin)
	defer cancel()
	if conditions, ok := p.Set.KeyMatch(rule.Name, key.Raw); ok {
		out.Match = config.MatchText(conditions)
	}
	for i, one := range rules {
		if counts[i].Known() {
			out.Counts = append(out.Counts, counts[i])
		}
		states := h.states(ctx, p, one, key.Raw, cmp.Or(counts[i].Tier, q.values.Get("tier")), counts[i].Asked)
		if one == rule || counts[i].Known() || slices.ContainsFunc(states, func(s State) bool { return s.Remaining < s.Capacity && s.known() }) {
			out.States = append(out.States, states...)
		} // Other rules count by the same entries, but may never have counted this key.
	}
	rest := *q
	rest.path, rest.limit, rest.values = "denials", keyDenials, maps.Clone(q.values)
	rest.values.Del("after")
	rest.values.Del("rule")
	answer, _ := h.denials(&rest)
	found, _ := answer.(Denials)
	slices.Reverse(found.Denials)
	out.Denials = found.Denials
	happened := *q
	happened.of, happened.values = insight.Last(insight.Kept), maps.Clone(q.values)
	happened.values.Set("range", happened.of.Of.String())
	h.pin(&happened)
	answer, _ = h.marks(&happened)
	marks, _ := answer.(Marks)
	out.Marks = marks.Marks
	top, _ := h.o.Recorder.Rule(rule.Name, insight.Last(insight.Kept))
	s := story{KeyReport: &out, rule: rule, outage: h.outage(), marks: out.Marks, denied: top.Denied, now: h.o.Recorder.Now().Unix(), slow: h.Slow(), counts: counts[0], moneyUnit: p.Models().Unit()}
	out.Answers = s.answers()
	return out, nil
}

// known returns what the table of subjects has of the client with this key, or "".
func known(p decide.Policy, rule, key string) string {
	var texts []string
	for _, e := range p.Set.Client(rule, key) {
		value := e.Value
		if p.Secret(e.Name) {
			value = p.Set.Hash(e.Name, value)
		}
		texts = append(texts, e.Name+" "+insight.Name{Raw: value}.Text())
	}
	return strings.Join(texts, ", ")
}

// nameKeys fills in what the table of subjects has of the keys.
func nameKeys(p decide.Policy, rule string, tops ...*insight.Top) {
	if p.Set.Subjects() == nil {
		return
	}
	for _, t := range tops {
		for i := range t.Keys {
			t.Keys[i].Known = known(p, rule, t.Keys[i].Key.Raw)
		}
	}
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
