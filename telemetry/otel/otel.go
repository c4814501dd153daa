package otel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/headgate/headgate"
)

// scope is the name of the instrumentation.
const scope = "github.com/headgate/headgate/telemetry/otel"

// Options are what spans and metrics are made with.
type Options struct {
	// Tracer makes the spans. Nil means none.
	Tracer trace.TracerProvider
	// Meter makes the metrics. Nil means none.
	Meter metric.MeterProvider
	// Propagator reads and writes the headers that traces pass on in. Nil means those of
	// W3C Trace Context.
	Propagator propagation.TextMapPropagator
}

// Telemetry makes spans and metrics. It is safe for concurrent use.
type Telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	decisions  metric.Int64Counter
	durations  metric.Float64Histogram
	failures   metric.Int64Counter

	// labels are the attribute sets of decisions, which are not made anew for each.
	labels sync.Map // of labelled to metric.MeasurementOption
}

// labelled is what the label of a decision is made of. Limits that are equal are the same, so
// that a policy which is reloaded adds nothing but what is new in it.
type labelled struct{ rule, limit, outcome string }

// New makes a Telemetry. It fails if the meter refuses an instrument.
func New(o Options) (*Telemetry, error) {
	if o.Tracer == nil {
		o.Tracer = nooptrace.NewTracerProvider()
	}
	if o.Meter == nil {
		o.Meter = noopmetric.NewMeterProvider()
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	meter := o.Meter.Meter(scope)
	decisions, failed := meter.Int64Counter("headgate.decisions",
		metric.WithDescription("Decisions on requests, one for each limit that bound them. Outcome: allowed, denied, shadow_denied, uncharged."))
	durations, failed2 := meter.Float64Histogram("headgate.store.duration", metric.WithUnit("s"),
		metric.WithDescription("How long calls to the store took, those that failed included."),
		metric.WithExplicitBucketBoundaries(10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1))
	failures, failed3 := meter.Int64Counter("headgate.store.errors", metric.WithDescription("Calls to the store that ended without a decision."))
	if err := errors.Join(failed, failed2, failed3); err != nil {
		return nil, err
	}
	return &Telemetry{tracer: o.Tracer.Tracer(scope), propagator: o.Propagator, decisions: decisions, durations: durations, failures: failures}, nil
}

// Hooks are what [headgate.Observe] needs.
func (t *Telemetry) Hooks() headgate.Hooks {
	return headgate.Hooks{Decided: t.decided, Failed: t.failed}
}

func (t *Telemetry) decided(ctx context.Context, op headgate.Op, _ []headgate.Check, decisions []headgate.Decision, took time.Duration) {
	t.durations.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.String("op", op.String())))
	verdict := headgate.NewVerdict(decisions)
	if op == headgate.OpTake {
		t.count(ctx, verdict)
	}
	span, start := t.span(ctx, op, took)
	if span == nil {
		return
	}
	attributes := describe(verdict)
	span.SetAttributes(attributes...)
	if op == headgate.OpTake {
		trace.SpanFromContext(ctx).SetAttributes(attributes...)
	}
	span.End(trace.WithTimestamp(start.Add(took)))
}

func (t *Telemetry) failed(ctx context.Context, op headgate.Op, _ []headgate.Check, err error, took time.Duration) {
	t.durations.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.String("op", op.String())))
	t.failures.Add(ctx, 1, metric.WithAttributes(attribute.String("op", op.String())))
	span, start := t.span(ctx, op, took)
	if span == nil {
		return
	}
	outcome := attribute.String("headgate.outcome", "error")
	span.SetAttributes(outcome)
	// The text of an error may quote what a client has sent.
	reason := "no decision"
	switch {
	case errors.Is(err, context.Canceled):
		reason = "the caller went away"
	case errors.Is(err, headgate.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		reason = "the store did not answer"
	case errors.Is(err, headgate.ErrInvalid):
		reason = "the checks are invalid"
	}
	span.SetStatus(codes.Error, reason)
	trace.SpanFromContext(ctx).SetAttributes(outcome)
	span.End(trace.WithTimestamp(start.Add(took)))
}

// span is that of a call that has just ended, and when the call began; nil if nobody follows
// the caller's trace.
func (t *Telemetry) span(ctx context.Context, op headgate.Op, took time.Duration) (trace.Span, time.Time) {
	start := time.Now().Add(-took)
	_, span := t.tracer.Start(ctx, "headgate."+op.String(), trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindInternal))
	if !span.IsRecording() {
		return nil, start
	}
	return span, start
}

// count counts the decisions.
func (t *Telemetry) count(ctx context.Context, verdict headgate.Verdict) {
	for i := range verdict.Decisions {
		d := &verdict.Decisions[i]
		outcome := "allowed"
		switch {
		case !d.Allowed && d.Shadow:
			outcome = "shadow_denied"
		case !d.Allowed:
			outcome = "denied"
		case !verdict.Allowed:
			outcome = "uncharged"
		}
		of := labelled{outcome: outcome}
		of.rule, of.limit = names(d)
		option, ok := t.labels.Load(of)
		if !ok {
			option, _ = t.labels.LoadOrStore(of, metric.WithAttributeSet(attribute.NewSet(
				attribute.String("rule", of.rule), attribute.String("limit", of.limit), attribute.String("outcome", of.outcome))))
		}
		t.decisions.Add(ctx, 1, option.(metric.AddOption))
	}
}

// describe says what became of a request, and by which limit.
func describe(verdict headgate.Verdict) []attribute.KeyValue {
	outcome := "allowed"
	if !verdict.Allowed {
		outcome = "denied"
	}
	list := []attribute.KeyValue{attribute.String("headgate.outcome", outcome)}
	for i := range verdict.Decisions {
		if d := &verdict.Decisions[i]; d.Shadow && !d.Allowed {
			list = append(list, attribute.Bool("headgate.shadow_denied", true))
			break
		}
	}
	d := verdict.Deciding()
	if d == nil {
		return list
	}
	rule, limit := names(d)
	list = append(list, attribute.String("headgate.rule", rule), attribute.String("headgate.limit", limit), attribute.String("headgate.source", d.Source.String()))
	if !d.Allowed && d.RetryAfter != headgate.Never {
		list = append(list, attribute.Int64("headgate.retry_after_ms", d.RetryAfter.Milliseconds()))
	}
	return list
}

func names(d *headgate.Decision) (rule, limit string) {
	if d.Rule != nil {
		rule = d.Rule.Name()
	}
	if d.Limit != nil {
		limit = d.Limit.String()
	}
	return rule, limit
}
