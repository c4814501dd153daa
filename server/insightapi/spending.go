package insightapi

import (
	"cmp"
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/telemetry/insight"
)

// SpendingReport is the answer to GET spent: what calls to language models have spent, in all
// instances together.
type SpendingReport struct {
	insight.Spending
	// Counts says that the policy has rules that count tokens or money. MoneyUnit is the unit of the
	// latter, in millionths of the currency.
	Counts    bool  `json:"counts"`
	MoneyUnit int64 `json:"money_unit"`
	// Budgets are the limits on tokens and money of calendar periods, of the keys that have spent most:
	// those first that will be spent first.
	Budgets   []Budget   `json:"budgets"`
	Instances []Instance `json:"instances"`
}

// Budget is what is left of a limit of a calendar period.
type Budget struct {
	Rule   string       `json:"rule"`
	Counts string       `json:"counts"`
	Key    insight.Name `json:"key"`
	Known  string       `json:"known,omitempty"` // what the table of subjects has of the key
	Limit  string       `json:"limit"`
	// Capacity and Remaining are in units of what is counted.
	Capacity  int64 `json:"capacity"`
	Remaining int64 `json:"remaining"`
	// Ends is when the period ends, and SpentAt when nothing will be left at the pace since the period
	// began, both in milliseconds since 1970. SpentAt is 0 if that is not within the period.
	Ends    int64 `json:"ends"`
	SpentAt int64 `json:"spent_at,omitempty"`
}

// askedBudgets is how many keys the store is asked for.
const askedBudgets = 50

func (h *Handler) spending(q *query) (any, *failure) {
	// Instances tell each other of all that they know, so that sums are right.
	own := h.o.Recorder.Spending(maxLimit)
	parts, instances := ask[insight.Spending](h, q)
	for _, p := range parts {
		own.Merge(p, maxLimit)
	}
	return h.whole(q, own, func() any {
		p := h.o.Policy()
		out := SpendingReport{Spending: own, Counts: p.Counts(), MoneyUnit: p.Models().Unit(), Instances: instances, Budgets: h.budgets(q.ctx, p, own.Spenders)}
		out.Spenders = out.Spenders[:min(len(out.Spenders), q.limit)]
		for i := range out.Spenders {
			s := &out.Spenders[i]
			s.Known = known(p, s.Rule, s.Key.Raw)
		}
		return out
	})
}

// budgets asks the store what is left of the budgets of those who spend.
func (h *Handler) budgets(ctx context.Context, p decide.Policy, spenders []insight.Spender) []Budget {
	list := []Budget{}
	ctx, cancel := context.WithTimeout(ctx, stateWithin)
	defer cancel()
	asked := make(map[[2]string]bool)
	add := func(rule *policy.Rule, key string) {
		if id := [2]string{rule.Name, key}; !asked[id] && len(asked) < askedBudgets {
			asked[id] = true
			list = append(list, h.budgetsOf(ctx, p, rule, key)...)
		}
	}
	rules := p.Rules()
	for i := range rules {
		if r := &rules[i]; r.Counts != models.Requests && len(r.Per) == 0 && !r.Direct {
			add(r, "") // One counter for all, whoever spends.
		}
	}
	for i := range spenders {
		if r := p.Rule(spenders[i].Rule); r != nil && r.Counts != models.Requests {
			add(r, spenders[i].Key.Raw)
		}
	}
	slices.SortStableFunc(list, func(a, b Budget) int {
		if (a.SpentAt == 0) != (b.SpentAt == 0) {
			return cmp.Compare(b.SpentAt, a.SpentAt) // What lasts comes last.
		}
		return cmp.Or(cmp.Compare(a.SpentAt, b.SpentAt), cmp.Compare(float64(a.Remaining)/float64(a.Capacity), float64(b.Remaining)/float64(b.Capacity)))
	})
	return list
}

// budgetsOf returns the budgets of one key. There are none if its limits depend on more than the key, or
// if the store does not say what is left.
func (h *Handler) budgetsOf(ctx context.Context, p decide.Policy, rule *policy.Rule, key string) (list []Budget) {
	limits, _ := limitsOf(p, rule, key, "")
	if limits == nil || !slices.ContainsFunc(limits.Limits(), isCalendar) {
		return nil
	}
	check := headgate.Check{Rule: limits, Key: key, Cost: 1, Hints: headgate.Hints{Consistency: rule.Consistency, DenyCache: rule.DenyCache, Scope: rule.Scope}}
	decisions, err := h.o.Take(ctx, headgate.OpPeek, []headgate.Check{check})
	if err != nil {
		return nil
	}
	for i := range limits.Limits() {
		l := &limits.Limits()[i]
		d := decisionOf(decisions, l, i)
		if !isCalendar(*l) || d == nil || d.Source == headgate.SourceOpen || d.Source == headgate.SourceLocal {
			continue
		}
		begin, end := algorithm.Window(l, d.At)
		b := Budget{
			Rule: rule.Name, Counts: rule.Counts.String(), Key: insight.Name{Raw: key}, Known: known(p, rule.Name, key),
			Limit: l.String(), Capacity: l.Capacity(), Remaining: d.Remaining, Ends: int64(end) / 1000,
		}
		if used := b.Capacity - b.Remaining; used > 0 {
			at := float64(d.At) + float64(b.Remaining)*float64(d.At-begin)/float64(used)
			if at < float64(end) {
				b.SpentAt = int64(at) / 1000
			}
		}
		list = append(list, b)
	}
	return list
}

func isCalendar(l headgate.Limit) bool { return l.Align >= headgate.AlignMinute }
