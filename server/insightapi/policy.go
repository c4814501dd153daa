package insightapi

import (
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/candidate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/telemetry/insight"
)

// PolicyReport is the answer to GET policy.
type PolicyReport struct {
	Version int64  `json:"version"`
	Hash    string `json:"hash"`
	// Rules are the first of the rules in force. All is the number of all rules.
	Rules []ShownRule `json:"rules"`
	All   int         `json:"all_rules"`
	// Changes are the last changes of the policy, the newest first.
	Changes []Change `json:"changes"`
	// Candidate has what the instances have found out about the candidate of this one, or null without a
	// candidate. Elsewhere are the names of the instances that try another one or none, or compare it
	// with another policy.
	Candidate *candidate.Report `json:"candidate"`
	Elsewhere []string          `json:"candidate_elsewhere,omitempty"`
	Instances []Instance        `json:"instances"`
}

// ShownRule is a rule in the form for people.
type ShownRule struct {
	Rule   string   `json:"rule"`
	Mode   string   `json:"mode"`
	Match  []string `json:"match"`
	Per    []string `json:"per"`
	Limits []string `json:"limits"`
	// Tiers are the limits by the tiers of the tariff.
	Tiers []ShownTier `json:"tiers,omitempty"`
	Place string      `json:"place,omitempty"`
}

// ShownTier is one tier of a tariff.
type ShownTier struct {
	Tier   string   `json:"tier"`
	Limits []string `json:"limits"`
}

// Change is one change of the policy in force, or a reload that failed.
type Change struct {
	// At is the time of the change, in milliseconds since 1970.
	At      int64  `json:"at"`
	Version int64  `json:"version"`
	Hash    string `json:"hash"`
	// Because is why the policy files were read.
	Because string `json:"because"`
	// Failed says why a reload failed. It is "" if the policy was changed.
	Failed string `json:"failed,omitempty"`
	// Mistakes are those of the files, each with its place.
	Mistakes []string `json:"mistakes,omitempty"`
	// Added, Removed and Changed are the rules that differ from the version before.
	Added   []string      `json:"added,omitempty"`
	Removed []string      `json:"removed,omitempty"`
	Changed []RuleChanged `json:"changed,omitempty"`
}

// RuleChanged is a rule that was changed. Before and After have the parts that differ.
type RuleChanged struct {
	Rule   string `json:"rule"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Store is the state of the store as one instance sees it.
type Store struct {
	Instance string `json:"instance"`
	Name     string `json:"name"`
	// State is "ok", "open" (it is not asked), "half_open" or "learning".
	State string `json:"state"`
	insight.StoreReport
	// Figures are further numbers, in the order in which to show them.
	Figures []Figure `json:"figures"`
	// Region is this region, if limits are divided among several.
	Region *Region `json:"region,omitempty"`
}

// Region is a region that has shares of limits.
type Region struct {
	Name string `json:"name"`
	// Cut says why the home cannot be asked, as this instance has seen it.
	Cut string `json:"cut,omitempty"`
	// Lent is how many keys have more than the region's own part.
	Lent int64 `json:"lent"`
	// Shares are those for which this instance asks the home, the largest demand first.
	Shares []Share `json:"shares"`
	More   int     `json:"more"`
}

// Share is what a region has of one limit of a key.
type Share struct {
	Rule  string       `json:"rule"`
	Key   insight.Name `json:"key"`
	Limit string       `json:"limit"`
	// Units are those of the limit, of which Own are the region's for good, and Lent for SinceMS.
	Units   int64 `json:"units"`
	Own     int64 `json:"own"`
	Lent    int64 `json:"lent"`
	SinceMS int64 `json:"since_ms"`
	// Demand is how many units a minute are asked for.
	Demand int64 `json:"demand_per_minute"`
	// Others are the units that are lent to other regions.
	Others []Lent `json:"others"`
}

// Lent is how many units a region has beyond its own.
type Lent struct {
	Region string `json:"region"`
	Units  int64  `json:"units"`
}

// Figure is a number with a name and a meaning.
type Figure struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	Value int64  `json:"value"`
	Help  string `json:"help"`
}

func (h *Handler) policy(q *query) (any, *failure) {
	var tried *candidate.Report
	if h.o.Candidate != nil {
		own := h.o.Candidate()
		tried = &own
	}
	if q.local {
		return part[*candidate.Report]{h.self(), tried}, nil
	}
	p := h.o.Policy()
	rules := p.Rules()
	out := PolicyReport{Version: p.Version, Hash: p.Hash, All: len(rules), Rules: []ShownRule{}, Changes: []Change{}}
	if q.values.Get("limit") == "" {
		q.limit = maxLimit
	}
	for i := range rules[:min(len(rules), q.limit)] {
		out.Rules = append(out.Rules, *show(p, &rules[i]))
	}
	if h.o.Changes != nil {
		out.Changes = append(out.Changes, h.o.Changes()...)
	}
	out.Candidate = tried
	var parts []*candidate.Report
	parts, out.Instances = ask[*candidate.Report](h, q)
	names := slices.DeleteFunc(slices.Clone(out.Instances[1:]), func(i Instance) bool { return !i.OK })
	for i, other := range parts {
		if tried != nil && (other == nil || !tried.Merge(*other)) {
			out.Elsewhere = append(out.Elsewhere, names[i].Name)
		}
	}
	return out, nil
}

func showRule(p decide.Policy, name string) *ShownRule {
	if r := p.Rule(name); r != nil {
		return show(p, r)
	}
	return nil
}

// show returns a rule without its secrets. Of a secret tier it has the hash, as elsewhere.
func show(p decide.Policy, r *policy.Rule) *ShownRule {
	s := &ShownRule{Rule: r.Name, Mode: r.Mode.String(), Match: []string{}, Per: []string{}, Limits: texts(r.Limits)}
	for i := range r.Match {
		s.Match = append(s.Match, matchText(&r.Match[i], p.Secret(r.Match[i].Entry)))
	}
	for i := range r.Per {
		s.Per = append(s.Per, r.Per[i].Entry)
	}
	if t := r.Tariff; t != nil {
		for i := range t.Tiers {
			tier := t.Tiers[i].Value
			if p.Secret(t.Entry) {
				tier = p.Set.Hash(t.Entry, tier)
			}
			s.Tiers = append(s.Tiers, ShownTier{tier, texts(t.Tiers[i].Limits)})
		}
		if t.Other != nil {
			s.Tiers = append(s.Tiers, ShownTier{"*", texts(t.Other)})
		}
	}
	if r.Pos != (policy.Position{}) {
		s.Place = r.Pos.String()
	}
	return s
}

// matchText says what a condition asks for, without secrets.
func matchText(c *policy.Condition, secret bool) string {
	switch {
	case c.Size() == 0 && c.Not:
		return "no " + c.Entry
	case c.Size() == 0:
		return "any " + c.Entry
	case c.Not:
		return c.Entry + " not " + c.Describe(secret)
	}
	return c.Entry + " " + c.Describe(secret)
}

func texts(limits *headgate.Rule) []string {
	list := []string{}
	if limits != nil {
		for i := range limits.Limits() {
			list = append(list, limits.Limits()[i].String())
		}
	}
	return list
}
