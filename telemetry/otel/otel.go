// Package otel shows what a [headgate.Store] decides to OpenTelemetry: a span for each call,
// and metrics.
//
// # Basics
//
// Make a [Telemetry] of the providers that the program has anyway, and put its hooks around
// the store:
//
//	telemetry, err := otel.New(otel.Options{Tracer: tracerProvider, Meter: meterProvider})
//	if err != nil {
//		return err
//	}
//	store := headgate.Observe(memory.New(), telemetry.Hooks())
//
// Each call of the store is a span "headgate.take" (peek, refund, reset, charge) below the
// span in the caller's context. Both have these attributes:
//
//	headgate.outcome          allowed, denied, or error
//	headgate.rule             of the limit that decides, see headgate.Verdict.Deciding
//	headgate.limit            that limit, such as "5 per 1m"
//	headgate.source           who decided: store, lease, local and so on
//	headgate.retry_after_ms   if it denies, unless no wait helps
//	headgate.shadow_denied    true if a rule in shadow would have denied
//
// With [Options.System], a call that the store answered is a client span with db.system.name. A denial
// is no error. A store that does not answer sets the status of its span.
//
// These metrics have the meaning of those of telemetry/prom:
//
//	headgate.decisions        {rule, limit, outcome}
//	headgate.store.duration   {op}, in seconds
//	headgate.store.errors     {op}
//
// Of calls to language models, [Telemetry.Spent] makes these, and the attributes gen_ai.usage.input_tokens
// and gen_ai.usage.output_tokens of the span in the context. A model is named as the policy's entry for it.
//
//	gen_ai.client.token.usage                       {gen_ai.request.model, gen_ai.token.type}
//	gen_ai.client.operation.time_to_first_chunk     {gen_ai.request.model}, in seconds
//	headgate.llm.money                              {gen_ai.request.model}
//	headgate.llm.charged                            {rule, counts, by}
//
// Traces pass from one process to the next in headers: [Telemetry.Handler] and
// [Telemetry.Transport] do that for HTTP, and package otelgrpc for gRPC. Programs that
// use OpenTelemetry's own instrumentation of net/http and gRPC need neither.
//
// # Caveats
//
// No attribute ever holds a key, an address, a path, or anything else that a client sends.
// Rules and limits are those of the policy.
package otel

import (
	"context"
	"errors"
	"net/http"
	"slices"
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
	"github.com/headgate/headgate/policy/models"
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
	// System is the database behind the store, as the semantic conventions name it, such as "redis" or
	// "postgresql". Calls that the store answered or failed to answer are then client spans of it. Empty
	// means that there is none, such as for a memory store.
	System string
}

// Telemetry makes spans and metrics. It is safe for concurrent use.
type Telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	system     string
	decisions  metric.Int64Counter
	durations  metric.Float64Histogram
	failures   metric.Int64Counter
	tokens     metric.Int64Histogram
	first      metric.Float64Histogram
	money      metric.Float64Counter
	charged    metric.Float64Counter

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
	tokens, failed4 := meter.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Tokens of calls to language models, as the provider has stated them."),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864))
	first, failed5 := meter.Float64Histogram("gen_ai.client.operation.time_to_first_chunk", metric.WithUnit("s"),
		metric.WithDescription("How long the first part of a streamed answer of a language model took."),
		metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	money, failed6 := meter.Float64Counter("headgate.llm.money", metric.WithDescription("What stated tokens cost by the policy's prices, in its currency."))
	charged, failed7 := meter.Float64Counter("headgate.llm.charged",
		metric.WithDescription("What ended calls to language models were charged under a rule, in tokens or the currency. By: usage, estimate."))
	if err := errors.Join(failed, failed2, failed3, failed4, failed5, failed6, failed7); err != nil {
		return nil, err
	}
	return &Telemetry{
		tracer: o.Tracer.Tracer(scope), propagator: o.Propagator, system: o.System, decisions: decisions, durations: durations, failures: failures,
		tokens: tokens, first: first, money: money, charged: charged,
	}, nil
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
	asked := len(decisions) == 0 || slices.ContainsFunc(decisions, func(d headgate.Decision) bool { return d.Source == headgate.SourceStore })
	span, start := t.span(ctx, op, took, asked)
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
	span, start := t.span(ctx, op, took, true)
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

// Spent counts a call to a language model that was settled, and adds what it has used to the span in
// the context.
func (t *Telemetry) Spent(ctx context.Context, s *models.Spending) {
	model := attribute.String("gen_ai.request.model", s.Label())
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(model)
	if s.Known {
		t.tokens.Record(ctx, s.Used.Input, metric.WithAttributes(model, attribute.String("gen_ai.token.type", "input")))
		t.tokens.Record(ctx, s.Used.Output, metric.WithAttributes(model, attribute.String("gen_ai.token.type", "output")))
		span.SetAttributes(attribute.Int64("gen_ai.usage.input_tokens", s.Used.Input), attribute.Int64("gen_ai.usage.output_tokens", s.Used.Output))
		if micros, priced := s.Micros(); priced {
			t.money.Add(ctx, float64(micros)/models.MicroUnits, metric.WithAttributes(model))
		}
	}
	if s.FirstChunk > 0 {
		t.first.Record(ctx, s.FirstChunk.Seconds(), metric.WithAttributes(model))
	}
	for _, c := range s.Charges {
		t.charged.Add(ctx, s.Models.Amount(c.Counts, c.Units), metric.WithAttributes(
			attribute.String("rule", c.Rule), attribute.String("counts", c.Counts.String()), attribute.String("by", s.By())))
	}
}

// span is that of a call that has just ended, and when the call began; nil if nobody follows
// the caller's trace. Asked says that the store itself was asked, and not only what stands before it.
func (t *Telemetry) span(ctx context.Context, op headgate.Op, took time.Duration, asked bool) (trace.Span, time.Time) {
	start := time.Now().Add(-took)
	options := []trace.SpanStartOption{trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindInternal)}
	if asked && t.system != "" {
		options = append(options, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("db.system.name", t.system)))
	}
	_, span := t.tracer.Start(ctx, "headgate."+op.String(), options...)
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

// Serve begins the span of a call that came with headers, for doors that are not HTTP. The
// span is in the context, and ended by the caller. The name must not be made of what clients
// send.
func (t *Telemetry) Serve(ctx context.Context, name string, headers propagation.TextMapCarrier) (context.Context, trace.Span) {
	return t.tracer.Start(t.propagator.Extract(ctx, headers), name, trace.WithSpanKind(trace.SpanKindServer))
}

// Call begins the span of a call that is about to be sent, and writes its trace into the
// headers. The span is ended by the caller.
func (t *Telemetry) Call(ctx context.Context, name string, headers propagation.TextMapCarrier) (context.Context, trace.Span) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	t.propagator.Inject(ctx, headers)
	return ctx, span
}

// Handler gives each request a span with the given name, below the one that its headers name, with
// method, scheme, status and, if next is a [Router], route by the semantic conventions for HTTP.
// What next decides about the request is told by the span's attributes. Next finds the span in
// the request's context, and in its headers, so that a proxy which passes these on passes on
// the trace.
//
// The name must not be made of what clients send.
func (t *Telemetry) Handler(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers := propagation.HeaderCarrier(r.Header)
		ctx, span := t.tracer.Start(t.propagator.Extract(r.Context(), headers), name, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		t.propagator.Inject(ctx, headers)
		r = r.WithContext(ctx)
		if !span.IsRecording() {
			next.ServeHTTP(w, r)
			return
		}
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		span.SetAttributes(method(r.Method), attribute.String("url.scheme", scheme))
		if routes, ok := next.(Router); ok {
			if route := routes.Route(r); route != "" {
				span.SetAttributes(attribute.String("http.route", route))
			}
		}
		answer := &answered{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answer, r)
		span.SetAttributes(attribute.Int("http.response.status_code", answer.status))
		if answer.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	})
}

// Router is a handler that knows by which of its routes it answers a request. A route is the
// handler's own text, never what a client has sent; "" is none.
type Router interface{ Route(r *http.Request) string }

// answered remembers the status of an answer.
type answered struct {
	http.ResponseWriter
	status int
	told   bool
}

// WriteHeader implements [http.ResponseWriter]. The first status that is no information counts.
func (a *answered) WriteHeader(status int) {
	if !a.told && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		a.status, a.told = status, true
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (a *answered) Write(b []byte) (int, error) {
	a.told = true
	return a.ResponseWriter.Write(b)
}

// Unwrap serves [http.ResponseController].
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Transport sends requests through next with the trace of their contexts in their headers, and
// a span with the given name for each. Nil is [http.DefaultTransport].
func (t *Telemetry) Transport(name string, next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return transport{t, name, next}
}

type transport struct {
	*Telemetry
	name string
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper]. The span ends when the headers of the answer are
// there.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := t.tracer.Start(r.Context(), t.name, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	r = r.Clone(ctx) // A RoundTripper must not change the request.
	t.propagator.Inject(ctx, propagation.HeaderCarrier(r.Header))
	answer, err := t.next.RoundTrip(r)
	if err == nil && span.IsRecording() {
		span.SetAttributes(method(r.Method), attribute.Int("http.response.status_code", answer.StatusCode))
	}
	return answer, err
}

// method is the attribute of a method; a client may make up methods.
func method(name string) attribute.KeyValue {
	switch name {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
	default:
		name = "_OTHER"
	}
	return attribute.String("http.request.method", name)
}
