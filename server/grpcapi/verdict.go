package grpcapi

import (
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/wire"
)

// newVerdict returns the answer to a request that was decided by the set.
func (s *Service) newVerdict(set *policy.Set, o *decide.Outcome) *headgatev1.Verdict {
	m := &headgatev1.Verdict{Allowed: o.Verdict.Allowed, RetryAfterMs: o.RetryAfterMS(), DelayMs: o.DelayMS(), At: o.At, Unenforced: o.Unenforced}
	if d := o.DeniedBy(); d != nil {
		text := s.texts.Of(set, d)
		m.DeniedBy = &headgatev1.DeniedBy{Rule: text.Rule, Limit: text.Limit}
	} else if o.Listed != nil {
		m.DeniedBy = &headgatev1.DeniedBy{List: o.Listed.Name}
	}
	if len(o.Verdict.Decisions) == 0 {
		return m
	}
	all := make([]headgatev1.Decision, len(o.Verdict.Decisions))
	m.Decisions = make([]*headgatev1.Decision, len(all))
	for i := range all {
		row, to := o.Row(i), &all[i]
		d, text := row.Decision, s.texts.Of(set, row.Decision)
		to.Rule, to.Limit, to.Algorithm = text.Rule, text.Limit, text.Algorithm
		to.Capacity, to.PeriodMs = text.Capacity, text.PeriodMS
		to.Allowed, to.Shadow, to.Soft = d.Allowed, d.Shadow, row.Soft
		to.Remaining, to.RetryAfterMs, to.ResetAfterMs = d.Remaining, row.RetryAfterMS, row.ResetAfterMS
		to.Source = row.Source
		m.Decisions[i] = to
	}
	return m
}

// appendVerdict appends the result of newVerdict in wire form.
func (s *Service) appendVerdict(b []byte, set *policy.Set, o *decide.Outcome) []byte {
	b = wire.AppendBool(b, verdictAllowed, o.Verdict.Allowed)
	var start int
	if d := o.DeniedBy(); d != nil {
		text := s.texts.Of(set, d)
		b, start = wire.Begin(b, verdictDeniedBy)
		b = wire.AppendText(b, deniedByRule, text.Rule)
		b = wire.End(wire.AppendText(b, deniedByLimit, text.Limit), start)
	} else if o.Listed != nil {
		b, start = wire.Begin(b, verdictDeniedBy)
		b = wire.End(wire.AppendText(b, deniedByList, o.Listed.Name), start)
	}
	b = wire.AppendInt(b, verdictRetryAfterMS, o.RetryAfterMS())
	b = wire.AppendInt(b, verdictDelayMS, o.DelayMS())
	b = wire.AppendInt(b, verdictAt, o.At)
	for i := range o.Verdict.Decisions {
		row := o.Row(i)
		d := row.Decision
		b, start = wire.Begin(b, verdictDecisions)
		b = append(b, s.texts.Of(set, d).wire...)
		b = wire.AppendBool(b, decisionAllowed, d.Allowed)
		b = wire.AppendInt(b, decisionRemaining, d.Remaining)
		b = wire.AppendInt(b, decisionRetryAfterMS, row.RetryAfterMS)
		b = wire.AppendInt(b, decisionResetAfterMS, row.ResetAfterMS)
		b = wire.AppendBool(b, decisionShadow, d.Shadow)
		b = wire.AppendBool(b, decisionSoft, row.Soft)
		b = wire.End(wire.AppendText(b, decisionSource, row.Source), start)
	}
	for _, name := range o.Unenforced {
		b = wire.AppendText(b, verdictUnenforced, name)
	}
	return b
}
