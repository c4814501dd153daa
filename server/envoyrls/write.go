package envoyrls

import (
	"math"
	"slices"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/policy/nested"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/wire"
)

// usual is enough for most answers, in bytes.
const usual = 256

// write encodes the answer, an envoy.service.ratelimit.v3.RateLimitResponse.
func (s *Service) write(q *scratch, o *decide.Outcome) wire.Written {
	w := wire.Writer{B: make([]byte, 0, usual)}
	w.Number(1, uint64(code(o.Verdict.Allowed)))
	for i := range q.parts.List {
		mark := w.Begin(2)
		q.status(&w, &q.parts.List[i])
		w.End(mark)
	}
	shown := q.verdict(o.Verdict)
	httplimit.WriteHeaders(q.header, s.options.Dialect, &shown)
	notice.WriteWarning(q.header, s.options.Dialect, &o.Verdict, q.ask.Policy.Set)
	for name := range q.header {
		q.names = append(q.names, name)
	}
	slices.Sort(q.names)
	for _, name := range q.names {
		mark := w.Begin(3)
		w.Text(1, name)
		w.Text(2, q.header[name][0])
		w.End(mark)
	}
	mark := w.Begin(6)
	q.metadata(&w, o)
	w.End(mark)
	return w.B
}

func code(allowed bool) pb.RateLimitResponse_Code {
	if allowed {
		return pb.RateLimitResponse_OK
	}
	return pb.RateLimitResponse_OVER_LIMIT
}

// code returns the code for one descriptor.
func (q *scratch) code(p *decide.Part) pb.RateLimitResponse_Code {
	d := worst(q.parts.Decisions(p))
	return code(!p.TurnsAway() && !p.Beyond && (d == nil || d.Allowed || d.Shadow))
}

// status writes the outcome for one descriptor.
func (q *scratch) status(w *wire.Writer, p *decide.Part) {
	d := worst(q.parts.Decisions(p))
	w.Number(1, uint64(q.code(p)))
	if d == nil {
		if p.Unlimited {
			w.Number(3, math.MaxUint32)
		}
		return
	}
	name := d.Rule.Name()
	if p.Leaf != nil {
		name = p.Leaf.Name
	}
	writeLimit(w, name, d.Limit.Count, d.Limit.Period, d.Limit.Align)
	w.Number(3, uint64(min(d.Remaining, math.MaxUint32)))
	// Whole seconds, because some readers ignore the fraction; rounded up, so that none of them comes
	// back too early.
	reset := d.ResetAfter
	if p.Leaf != nil {
		reset = untilEnd(d)
	}
	if seconds := (reset + time.Second - 1) / time.Second; seconds > 0 {
		mark := w.Begin(4)
		w.Number(1, uint64(seconds))
		w.End(mark)
	}
}

// verdict returns the verdict from which the headers are made. For a configuration of
// envoyproxy/ratelimit, the headers say what envoyproxy/ratelimit says: they include limits of
// zero, limits in shadow if no other limit binds, and the end of a window of which nothing was
// used.
func (q *scratch) verdict(v headgate.Verdict) headgate.Verdict {
	if q.ask.Policy.Nested == nil {
		return v
	}
	q.shown = append(q.shown[:0], v.Decisions...)
	for i := range q.parts.List {
		if p := &q.parts.List[i]; p.Denies && p.Leaf != nil {
			q.shown = append(q.shown, q.parts.Decisions(p)...)
		}
	}
	v.Decisions = q.shown
	binds := v.Deciding() != nil
	for i := range q.shown {
		d := &q.shown[i]
		d.ResetAfter = untilEnd(d)
		d.Shadow = d.Shadow && binds
	}
	return v
}

// untilEnd returns how long it takes until the limit of a nested configuration is free again or, if
// nothing of it was used, until its window ends.
func untilEnd(d *headgate.Decision) time.Duration {
	if d.ResetAfter > 0 || d.At == 0 || d.Limit.Align != headgate.AlignUTC || d.Limit.Period <= 0 {
		return d.ResetAfter
	}
	return nested.WindowLeft(d.Limit.Period, d.At)
}

// worst returns the decision that describes a descriptor. As in a verdict, that is the denial with
// the longest RetryAfter, or else the decision with the least Remaining. Limits in shadow count
// only if there are no others.
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

// writeLimit writes a limit, in the largest unit that divides its period. The unit is UNKNOWN if
// the period is not a whole number of seconds.
func writeLimit(w *wire.Writer, name string, count int64, period time.Duration, align headgate.Alignment) {
	mark := w.Begin(2)
	w.Number(1, uint64(count))
	unit, n := inUnits(period)
	switch align {
	case headgate.AlignMinute:
		unit = pb.RateLimitResponse_RateLimit_MINUTE
	case headgate.AlignHour:
		unit = pb.RateLimitResponse_RateLimit_HOUR
	case headgate.AlignDay:
		unit = pb.RateLimitResponse_RateLimit_DAY
	case headgate.AlignWeek:
		unit = pb.RateLimitResponse_RateLimit_WEEK
	case headgate.AlignMonth:
		unit = pb.RateLimitResponse_RateLimit_MONTH
	case headgate.AlignYear:
		unit = pb.RateLimitResponse_RateLimit_YEAR
	}
	w.Number(2, uint64(unit))
	w.Text(3, name)
	if n > 1 {
		inner := w.Begin(4)
		w.Number(1, uint64(n))
		w.End(inner)
	}
	w.End(mark)
}

// unit is one of the protocol's units of time.
type unit struct {
	length time.Duration
	unit   pb.RateLimitResponse_RateLimit_Unit
}

// units returns all units, the longest first.
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

func inUnits(period time.Duration) (pb.RateLimitResponse_RateLimit_Unit, time.Duration) {
	for _, u := range units() {
		if period >= u.length && period%u.length == 0 {
			return u.unit, period / u.length
		}
	}
	return pb.RateLimitResponse_RateLimit_UNKNOWN, 1
}
