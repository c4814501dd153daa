package grpcapi

import (
	"context"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// Explain implements the service.
func (s *Service) Explain(ctx context.Context, r *headgatev1.ExplainRequest) (*headgatev1.Explanation, error) {
	sc := s.get()
	sc.request.read(r.GetEntries(), nil, r.Cost)
	answer, err := s.explain(ctx, sc)
	s.put(sc)
	return answer, err
}

func (s *Service) explain(ctx context.Context, sc *scratch) (*headgatev1.Explanation, error) {
	rules := s.decider.Policy()
	sc.request.check(headgate.OpPeek, &sc.faults)
	sc.request.checkOrder(rules, &sc.faults)
	if len(sc.faults) > 0 {
		return nil, sc.faults.status()
	}
	e := rules.Explain(sc.request.entries, sc.request.cost.or1())
	if e.Error == "" {
		if checks := e.Checks(); len(checks) > 0 {
			var err error
			ask := decide.Ask{Op: headgate.OpPeek, Policy: rules, Checks: checks}
			if sc.decisions, err = s.decider.Take(ctx, &ask, sc.decisions); err != nil {
				return nil, failed(ctx, err)
			}
		}
		e.Observe(rules.Set, sc.decisions)
	}
	return newExplanation(&e), nil
}

func newExplanation(e *policy.Explanation) *headgatev1.Explanation {
	m := &headgatev1.Explanation{Cost: e.Cost, Error: e.Error, Denied: newList(e.Denied), Allowed: newList(e.Allowed)}
	for _, entry := range e.Entries {
		m.Entries = append(m.Entries, &headgatev1.ExplainedEntry{
			Name: entry.Name, Value: entry.Value, Secret: entry.Secret, FromSubjects: entry.Known, Replaced: entry.Replaced,
		})
	}
	for _, step := range e.Steps {
		m.Steps = append(m.Steps, &headgatev1.ExplainedStep{Entry: step.Entry, Node: step.Node, By: step.By, Pos: newPosition(step.Pos)})
	}
	for i := range e.Rules {
		m.Rules = append(m.Rules, newExplainedRule(&e.Rules[i]))
	}
	if v := e.Verdict; v != nil {
		m.Verdict = &headgatev1.ExplainedVerdict{Allowed: v.Allowed, Rule: v.Rule, Limit: v.Limit, RetryAfterMs: v.RetryAfter}
	}
	return m
}

func newExplainedRule(r *policy.ExplainedRule) *headgatev1.ExplainedRule {
	m := &headgatev1.ExplainedRule{
		Rule: r.Rule, Pos: newPosition(r.Pos), Binds: r.Binds, Why: r.Why, Key: r.Key, Hashed: r.Hashed, OldHashKey: r.OldHashKey,
		Cost: r.Cost, Tier: r.Tier, Override: int32(r.Override), Shadow: r.Shadow, Enforce: int32(r.Enforce), Soft: int32(r.Soft),
		GiveBackOn: r.GiveBackOn, ChargeOn: r.ChargeOn, Abandoned: r.Abandoned, OnStoreError: r.OnError, Consistency: r.Consistency, DenyCache: r.DenyCache,
		Quota: r.Quota, Admits: r.Admits, Replaces: r.Replaces, LimitName: r.LimitName, Depth: int32(r.Depth),
	}
	for _, l := range r.Limits {
		to := &headgatev1.ExplainedLimit{Limit: l.Limit, Algorithm: l.Algorithm}
		if d := l.State; d != nil {
			to.State = &headgatev1.ExplainedDecision{
				Allowed: d.Allowed, Remaining: d.Remaining, RetryAfterMs: d.RetryAfter, ResetAfterMs: d.ResetAfter, Soft: d.Soft, Source: d.Source,
			}
		}
		m.Limits = append(m.Limits, to)
	}
	return m
}

func newList(l *policy.ExplainedList) *headgatev1.ExplainedList {
	if l == nil {
		return nil
	}
	return &headgatev1.ExplainedList{Name: l.Name, Pos: newPosition(l.Pos)}
}

func newPosition(p policy.Position) *headgatev1.Position {
	if p == (policy.Position{}) {
		return nil
	}
	return &headgatev1.Position{File: p.File, Line: int32(p.Line), Column: int32(p.Column)}
}
