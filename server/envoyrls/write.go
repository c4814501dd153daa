package envoyrls

import (
	"math"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// write makes the answer.
func (s *Service) write(q *scratch) *pb.RateLimitResponse {
	answer := &pb.RateLimitResponse{
		OverallCode: pb.RateLimitResponse_OK,
		Statuses:    make([]*pb.RateLimitResponse_DescriptorStatus, len(q.plans)),
	}
	verdict := headgate.NewVerdict(q.told)
	for i := range q.plans {
		p := &q.plans[i]
		answer.Statuses[i] = q.status(p)
		if p.turnsAway() {
			verdict.Allowed, verdict.RetryAfter = false, headgate.Never
		}
	}
	if !verdict.Allowed {
		answer.OverallCode = pb.RateLimitResponse_OVER_LIMIT
	}
	httplimit.WriteHeaders(q.header, s.options.Dialect, &verdict)
	for name, values := range q.header {
		answer.ResponseHeadersToAdd = append(answer.ResponseHeadersToAdd, &core.HeaderValue{Key: name, Value: values[0]})
	}
	answer.DynamicMetadata = q.metadata(&verdict)
	return answer
}

// status is the outcome for one descriptor.
func (q *scratch) status(p *plan) *pb.RateLimitResponse_DescriptorStatus {
	status := &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK}
	decisions := of(p.decisions, q.decisions)
	switch {
	case p.turnsAway():
		status.Code = pb.RateLimitResponse_OVER_LIMIT
	case p.unlimited:
		status.LimitRemaining = math.MaxUint32
	}
	if p.denies && p.leaf != nil {
		status.CurrentLimit = &pb.RateLimitResponse_RateLimit{Name: p.leaf.Name}
		setPeriod(status.CurrentLimit, p.leaf.Period)
	}
	d := worst(decisions)
	if d == nil {
		return status
	}
	if !d.Allowed && !d.Shadow {
		status.Code = pb.RateLimitResponse_OVER_LIMIT
	}
	status.CurrentLimit = currentLimit(d)
	if p.leaf != nil {
		status.CurrentLimit.Name = p.leaf.Name
	}
	status.LimitRemaining = uint32(min(d.Remaining, math.MaxUint32))
	// In whole seconds, which is all that some readers look at: rounded up, so
	// that none of them comes too early.
	status.DurationUntilReset = &durationpb.Duration{Seconds: int64((d.ResetAfter + time.Second - 1) / time.Second)}
	return status
}

// worst is the decision that says most of a descriptor: as in a verdict, a denial
// with the longest time to wait, or else the least that remains. Shadows have a
// say only where there is nothing else.
func worst(decisions []headgate.Decision) *headgate.Decision {
	verdict := headgate.NewVerdict(decisions)
	if d := verdict.Deciding(); d != nil {
		return d
	}
	var worst *headgate.Decision
	for i := range decisions {
		if d := &decisions[i]; worst == nil || worst.Allowed && !d.Allowed || worst.Allowed == d.Allowed && d.Remaining < worst.Remaining {
			worst = d
		}
	}
	return worst
}

// currentLimit is a limit as the protocol has it.
func currentLimit(d *headgate.Decision) *pb.RateLimitResponse_RateLimit {
	limit := &pb.RateLimitResponse_RateLimit{Name: d.Rule.Name(), RequestsPerUnit: uint32(d.Limit.Count)}
	if unit, ok := calendar[d.Limit.Align]; ok {
		limit.Unit = unit
	} else {
		setPeriod(limit, d.Limit.Period)
	}
	return limit
}

var calendar = map[headgate.Alignment]pb.RateLimitResponse_RateLimit_Unit{
	headgate.AlignMinute: pb.RateLimitResponse_RateLimit_MINUTE,
	headgate.AlignHour:   pb.RateLimitResponse_RateLimit_HOUR,
	headgate.AlignDay:    pb.RateLimitResponse_RateLimit_DAY,
	headgate.AlignWeek:   pb.RateLimitResponse_RateLimit_WEEK,
	headgate.AlignMonth:  pb.RateLimitResponse_RateLimit_MONTH,
	headgate.AlignYear:   pb.RateLimitResponse_RateLimit_YEAR,
}

// setPeriod says how long a period is in the largest unit that divides it. One
// that is no whole seconds has none.
func setPeriod(limit *pb.RateLimitResponse_RateLimit, period time.Duration) {
	for _, u := range units() {
		if period > 0 && period%u.length == 0 {
			limit.Unit = u.unit
			if n := period / u.length; n > 1 {
				limit.UnitMultiplier = wrapperspb.UInt32(uint32(n))
			}
			return
		}
	}
}

// unit is a unit of time of the protocol.
type unit struct {
	length time.Duration
	unit   pb.RateLimitResponse_RateLimit_Unit
}

// units are all of them, from the longest.
func units() [7]unit {
	const day = 24 * time.Hour
	return [...]unit{
		{365 * day, pb.RateLimitResponse_RateLimit_YEAR},
		{30 * day, pb.RateLimitResponse_RateLimit_MONTH},
		{7 * day, pb.RateLimitResponse_RateLimit_WEEK},
		{day, pb.RateLimitResponse_RateLimit_DAY},
		{time.Hour, pb.RateLimitResponse_RateLimit_HOUR},
		{time.Minute, pb.RateLimitResponse_RateLimit_MINUTE},
		{time.Second, pb.RateLimitResponse_RateLimit_SECOND},
	}
}

// metadata tells other filters, and access logs, what decided.
func (q *scratch) metadata(v *headgate.Verdict) *structpb.Struct {
	fields := map[string]*structpb.Value{"allowed": structpb.NewBoolValue(v.Allowed)}
	q.tellDeciding(fields, v)
	var shadows, exceeded []*structpb.Value
	for i := range q.plans {
		p := &q.plans[i]
		for _, d := range of(p.decisions, q.decisions) {
			if d.Shadow && !d.Allowed {
				shadows = append(shadows, structpb.NewStringValue(d.Rule.Name()))
				if p.leaf != nil && p.leaf.Quota {
					exceeded = append(exceeded, structpb.NewNumberValue(float64(i)))
				}
			}
		}
	}
	if shadows != nil {
		fields["shadow_denied"] = structpb.NewListValue(&structpb.ListValue{Values: shadows})
	}
	if exceeded != nil {
		// The name that envoyproxy/ratelimit gives it.
		fields["quotaModeViolations"] = structpb.NewListValue(&structpb.ListValue{Values: exceeded})
	}
	return &structpb.Struct{Fields: fields}
}

// tellDeciding says which limit decided, and of which descriptor.
func (q *scratch) tellDeciding(fields map[string]*structpb.Value, v *headgate.Verdict) {
	number := func(name string, n int64) { fields[name] = structpb.NewNumberValue(float64(n)) }
	// The decisions of the descriptors that decide for them, in their order.
	q.told = q.told[:0]
	for i := range q.plans {
		p := &q.plans[i]
		if p.turnsAway() {
			number("descriptor", int64(i))
			if p.listed != nil {
				fields["list"] = structpb.NewStringValue(p.listed.Name)
			}
			return
		}
		own := headgate.NewVerdict(of(p.decisions, q.decisions))
		if d := own.Deciding(); d != nil && p.op != headgate.OpRefund {
			q.told = append(q.told, *d)
			q.told[len(q.told)-1].Check = i
		}
	}
	all := headgate.NewVerdict(q.told)
	d := all.Deciding()
	if d == nil {
		return
	}
	number("descriptor", int64(d.Check))
	number("remaining", d.Remaining)
	fields["rule"] = structpb.NewStringValue(d.Rule.Name())
	fields["limit"] = structpb.NewStringValue(d.Limit.String())
	if !v.Allowed && v.RetryAfter != headgate.Never {
		number("retry_after_ms", int64((v.RetryAfter+time.Millisecond-1)/time.Millisecond))
	}
	if v.Delay > 0 {
		number("delay_ms", int64((v.Delay+time.Millisecond-1)/time.Millisecond))
	}
}
