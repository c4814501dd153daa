package grpcapi

import (
	"context"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
	"github.com/headgate/headgate/server/decide"
)

// Explain implements the service.
func (s *Service) Explain(ctx context.Context, m *headgatev1.ExplainRequest) (*headgatev1.Explanation, error) {
	return with(s.pool, func(r *decide.Request) (*headgatev1.Explanation, error) {
		read(r, m.GetEntries(), nil, m.Cost, m.GetUsage())
		complete(r)
		e, o := r.Explain(ctx, s.decider)
		if err := statusOf(ctx, r.Faults, o); err != nil {
			return nil, err
		}
		return newExplanation(&e), nil
	})
}

func newExplanation(e *explain.Explanation) *headgatev1.Explanation {
	m := &headgatev1.Explanation{Cost: e.Cost, Error: e.Error, Denied: newList(e.Denied), Allowed: newList(e.Allowed)}
	for _, entry := range e.Entries {
		m.Entries = append(m.Entries, &headgatev1.ExplainedEntry{
			Name: entry.Name, Value: entry.Value, Secret: entry.Secret, FromSubjects: entry.Known, Replaced: entry.Replaced, Unused: entry.Unused, Meant: entry.Meant,
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
	if o := e.WithoutStore; o != nil {
		m.WithoutStore = &headgatev1.ExplainedOutage{OnStoreError: o.OnError, Rule: o.Rule, Default: o.Default}
	}
	return m
}

func newExplainedRule(r *explain.Rule) *headgatev1.ExplainedRule {
	m := &headgatev1.ExplainedRule{
		Rule: r.Rule, Pos: newPosition(r.Pos), Binds: r.Binds, Why: r.Why, Key: r.Key, Hashed: r.Hashed, OldHashKey: r.OldHashKey,
		Cost: r.Cost, Tier: r.Tier, Override: int32(r.Override), Shadow: r.Shadow, Enforce: int32(r.Enforce), Soft: int32(r.Soft),
		GiveBackOn: r.GiveBackOn, ChargeOn: r.ChargeOn, Abandoned: r.Abandoned, OnStoreError: r.OnError, Consistency: r.Consistency, DenyCache: r.DenyCache, Scope: r.Scope,
		Quota: r.Quota, Admits: r.Admits, Replaces: r.Replaces, LimitName: r.LimitName, Depth: int32(r.Depth),
	}
	if p := r.InProgress; p != nil {
		m.InProgress = &headgatev1.ExplainedInProgress{Limit: p.Limit, Cost: p.Cost, WaitMs: p.Wait, Queue: int32(p.Queue), Shared: p.Shared, TtlMs: p.TTL}
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

func newList(l *explain.Listed) *headgatev1.ExplainedList {
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
