package insightapi

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// State is the state of one limit for a key.
type State struct {
	Rule string `json:"rule"`
	Mode string `json:"mode"`
	// Tier is the tier whose limits apply. Override is the number of the override, counted from 1, or
	// zero for none.
	Tier     string `json:"tier,omitempty"`
	Override int    `json:"override,omitempty"`
	Limit    string `json:"limit"`
	// Algorithm, Capacity and PeriodMS describe the limit.
	Algorithm string `json:"algorithm"`
	Capacity  int64  `json:"capacity"`
	PeriodMS  int64  `json:"period_ms"`
	Remaining int64  `json:"remaining"`
	// Source is who decided. If it is "local", Capacity and Remaining are those of the server's share
	// of the limit. If it is "open", nobody knows what was used.
	Source string `json:"source"`
	// RetryAfterMS is how long it takes until one more unit fits, and ResetAfterMS how long until all
	// of the limit is free again. Both are in milliseconds.
	RetryAfterMS int64 `json:"retry_after_ms"`
	ResetAfterMS int64 `json:"reset_after_ms"`
	// Frees says when the used units become free, in the order of time, if nothing else comes. If few
	// units of a sliding window are used, each of them is listed.
	Frees []Free `json:"frees,omitempty"`
	// Needs is a limit of the same kind at which nothing that the key has asked for in the last hour
	// would have been denied, and Asked how many units that was, and within which time. Needs is "" if
	// the limit is long enough for it, or measures no rate.
	Needs string `json:"needs,omitempty"`
	Asked string `json:"asked,omitempty"`
	// Error says why the state is not known, or is "".
	Error string `json:"error,omitempty"`
}

// known reports whether it is known how much of the limit is used.
func (s *State) known() bool { return s.Error == "" && s.Source != headgate.SourceOpen.String() }

// Free says when some of the used units become free.
type Free struct {
	// Units is the number of units that become free after the previous element's time, and at the
	// latest AfterMS milliseconds from now.
	Units   int64 `json:"units"`
	AfterMS int64 `json:"after_ms"`
}

// maxFrees is the maximum number of elements in Frees of one limit. Each takes a call to the store.
const maxFrees = 20

// limitsOf returns the limits of the rule for a key of the tier. It returns nil if there are none,
// or if more than the key is needed to know them.
func limitsOf(p decide.Policy, rule *policy.Rule, key, tier string) (*headgate.Rule, int) {
	d, hashed := p.Set.KeyEntries(rule.Name, key)
	if t := rule.Tariff; t != nil && tier != "" {
		value := tier
		for i := range t.Tiers {
			if known := t.Tiers[i].Value; p.Secret(t.Entry) && p.Set.Hash(t.Entry, known) == tier {
				value = known
			}
		}
		d = append(d, policy.Entry{Name: t.Entry, Value: value})
	}
	return p.Set.Limits(rule.Name, d, hashed...)
}

// states asks the store for the state of the rule's limits for the key, which has asked for so many
// units in the last minutes.
func (h *Handler) states(ctx context.Context, p decide.Policy, rule *policy.Rule, key, tier string, asked []int64) []State {
	limits, override := limitsOf(p, rule, key, tier)
	if limits == nil {
		return nil
	}
	check := headgate.Check{Rule: limits, Key: key, Cost: 1, Hints: headgate.Hints{Consistency: rule.Consistency, DenyCache: rule.DenyCache, Scope: rule.Scope}}
	decisions, err := h.o.Take(ctx, headgate.OpPeek, []headgate.Check{check})
	all := limits.Limits()
	states := make([]State, len(all))
	for i := range all {
		l := &all[i]
		states[i] = State{
			Rule: rule.Name, Mode: rule.Mode.String(), Tier: tier, Override: override, Limit: l.String(), Algorithm: l.Algorithm.String(),
			Capacity: l.Capacity(), PeriodMS: l.Micros() / 1000, Error: "the store does not say",
		}
		if err != nil {
			states[i].Error = errtext.Text(err)
		}
		states[i].Needs, states[i].Asked = needed(l, asked)
		if d := decisionOf(decisions, l, i); d != nil {
			states[i].Remaining, states[i].Source, states[i].Error = d.Remaining, d.Source.String(), ""
			if d.Source == headgate.SourceLocal {
				states[i].Capacity = d.Limit.Capacity()
			}
			states[i].RetryAfterMS, states[i].ResetAfterMS = decide.Millis(d.RetryAfter), decide.Millis(d.ResetAfter)
		}
	}
	if err == nil && len(decisions) > 0 {
		h.frees(ctx, check, states, decisions[0].At)
	}
	return states
}

// decisionOf returns the decision about the limit l, which is the i-th of its rule, or nil.
func decisionOf(decisions []headgate.Decision, l *headgate.Limit, i int) *headgate.Decision {
	for j := range decisions {
		if d := &decisions[j]; d.Limit == l || d.Source == headgate.SourceLocal && j == i {
			return d
		}
	}
	return nil
}

// frees fills in Frees. It peeks with larger and larger costs, because the RetryAfter of each says
// when the used units become free, whatever the algorithm and the store. from is the time of the
// states.
func (h *Handler) frees(ctx context.Context, check headgate.Check, states []State, from headgate.Instant) {
	all := check.Rule.Limits()
	for i := range states {
		s := &states[i]
		used := s.Capacity - s.Remaining
		if !s.known() || used <= 0 {
			continue
		}
		steps, before := min(used, maxFrees), int64(0)
		for step := int64(1); step <= steps; step++ {
			// This is used×step/steps rounded up, computed without overflow. So the last step has all units.
			units := used/steps*step + (used%steps*step+steps-1)/steps
			check.Cost = s.Remaining + units
			decisions, err := h.o.Take(ctx, headgate.OpPeek, []headgate.Check{check})
			d := decisionOf(decisions, &all[i], i)
			if err != nil || d == nil || d.RetryAfter == headgate.Never {
				s.Frees = nil
				break
			}
			after := max(decide.Millis(d.RetryAfter)+int64(d.At-from)/1000, 0)
			if n := len(s.Frees); n > 0 && after <= s.Frees[n-1].AfterMS {
				s.Frees[n-1].Units += units - before
			} else {
				s.Frees = append(s.Frees, Free{Units: units - before, AfterMS: after})
			}
			before = units
		}
	}
}
