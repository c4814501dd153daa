package grpcapi

import (
	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// listed reports whether the deny list answers the request.
func (sc *scratch) listed(op headgate.Op) bool {
	return sc.ask.Denied != nil && (op == headgate.OpTake || op == headgate.OpPeek)
}

// newVerdict is the answer to the request in the scratch.
func (s *Service) newVerdict(op headgate.Op, sc *scratch) *headgatev1.Verdict {
	if sc.listed(op) {
		return &headgatev1.Verdict{DeniedBy: &headgatev1.DeniedBy{List: sc.ask.Denied.Name}, RetryAfterMs: -1}
	}
	v := headgate.NewVerdict(sc.decisions)
	t := s.texts.of(sc.ask.Policy)
	m := &headgatev1.Verdict{Allowed: v.Allowed, RetryAfterMs: ceilMillis(v.RetryAfter), DelayMs: ceilMillis(v.Delay)}
	if d := v.Deciding(); d != nil && !v.Allowed {
		text := t.limit(d)
		m.DeniedBy = &headgatev1.DeniedBy{Rule: text.rule, Limit: text.limit}
	}
	if len(v.Decisions) == 0 {
		return m
	}
	m.At = v.Decisions[0].At
	all := make([]headgatev1.Decision, len(v.Decisions))
	m.Decisions = make([]*headgatev1.Decision, len(v.Decisions))
	for i := range v.Decisions {
		d, text, to := &v.Decisions[i], t.limit(&v.Decisions[i]), &all[i]
		to.Rule, to.Limit, to.Algorithm = text.rule, text.limit, text.algorithm
		to.Capacity, to.PeriodMs = text.capacity, text.periodMS
		to.Allowed, to.Shadow, to.Soft = d.Allowed, d.Shadow, t.policy.Soft(d)
		to.Remaining, to.RetryAfterMs, to.ResetAfterMs = d.Remaining, ceilMillis(d.RetryAfter), ceilMillis(d.ResetAfter)
		to.Source = sourceText(d.Source)
		m.Decisions[i] = to
	}
	return m
}

// appendVerdict appends what newVerdict says, as protobuf has it.
func (s *Service) appendVerdict(b []byte, op headgate.Op, sc *scratch) []byte {
	if sc.listed(op) {
		b, start := begin(b, verdictDeniedBy)
		b = appendText(b, deniedByList, sc.ask.Denied.Name)
		return appendInt(end(b, start), verdictRetryAfterMS, -1)
	}
	v := headgate.NewVerdict(sc.decisions)
	t := s.texts.of(sc.ask.Policy)
	b = appendBool(b, verdictAllowed, v.Allowed)
	if d := v.Deciding(); d != nil && !v.Allowed {
		text := t.limit(d)
		var start int
		b, start = begin(b, verdictDeniedBy)
		b = appendText(b, deniedByRule, text.rule)
		b = end(appendText(b, deniedByLimit, text.limit), start)
	}
	b = appendInt(b, verdictRetryAfterMS, ceilMillis(v.RetryAfter))
	b = appendInt(b, verdictDelayMS, ceilMillis(v.Delay))
	if len(v.Decisions) > 0 {
		b = appendInt(b, verdictAt, v.Decisions[0].At)
	}
	for i := range v.Decisions {
		d := &v.Decisions[i]
		var start int
		b, start = begin(b, verdictDecisions)
		b = append(b, t.limit(d).wire...)
		b = appendBool(b, decisionAllowed, d.Allowed)
		b = appendInt(b, decisionRemaining, d.Remaining)
		b = appendInt(b, decisionRetryAfterMS, ceilMillis(d.RetryAfter))
		b = appendInt(b, decisionResetAfterMS, ceilMillis(d.ResetAfter))
		b = appendBool(b, decisionShadow, d.Shadow)
		b = appendBool(b, decisionSoft, t.policy.Soft(d))
		b = end(appendText(b, decisionSource, sourceText(d.Source)), start)
	}
	return b
}
