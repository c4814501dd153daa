package otel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/telemetry/otel"
)

// secret is the key of all checks, which no span and no metric may hold.
const secret = "key-of-anna"

// recorded is a Telemetry whose spans and metrics are kept in memory.
type recorded struct {
	*otel.Telemetry
	spans    *tracetest.InMemoryExporter
	metrics  *sdkmetric.ManualReader
	provider trace.TracerProvider
	tracer   trace.Tracer
}

func record(t *testing.T) *recorded {
	t.Helper()
	r := &recorded{spans: tracetest.NewInMemoryExporter(), metrics: sdkmetric.NewManualReader()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans))
	telemetry, err := otel.New(otel.Options{Tracer: provider, Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.metrics))})
	if err != nil {
		t.Fatal(err)
	}
	r.Telemetry, r.provider, r.tracer = telemetry, provider, provider.Tracer("test")
	return r
}

// attributes are those of a span as text, sorted.
func attributes(span *tracetest.SpanStub) string {
	var list []string
	for _, a := range span.Attributes {
		list = append(list, fmt.Sprintf("%s=%v", strings.TrimPrefix(string(a.Key), "headgate."), a.Value.AsInterface()))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// TestSpans: each call is a span below the caller's, which says what became of it and why.
func TestSpans(t *testing.T) {
	r := record(t)
	store := headgate.Observe(memory.New(memory.Clock(func() int64 { return 1_763_712_000_000_000 })), r.Hooks())
	login := headgate.MustRule("login", headgate.Sliding(2, time.Minute), headgate.PerHour(100))
	tried := headgate.MustRule("tried", headgate.PerHour(1))
	wide := headgate.MustRule("wide", headgate.PerHour(1000))
	check := headgate.Check{Rule: login, Key: secret, Cost: 1}
	take := func(op headgate.Op, checks ...headgate.Check) {
		t.Helper()
		ctx, span := r.tracer.Start(t.Context(), "caller")
		if _, err := store.Take(ctx, op, checks, nil); err != nil {
			t.Fatal(err)
		}
		span.End()
	}
	for _, tt := range []struct {
		op     headgate.Op
		checks []headgate.Check
		want   string
	}{
		{headgate.OpTake, []headgate.Check{{Rule: wide, Key: secret, Cost: 1}, check}, "limit=2 per 1m outcome=allowed rule=login source=store"},
		{headgate.OpTake, []headgate.Check{{Rule: tried, Key: secret, Cost: 2, Shadow: true}, check}, "limit=2 per 1m outcome=allowed rule=login shadow_denied=true source=store"},
		{headgate.OpTake, []headgate.Check{check, {Rule: wide, Key: secret, Cost: 1}}, "limit=2 per 1m outcome=denied retry_after_ms=60000 rule=login source=store"},
		{headgate.OpTake, []headgate.Check{{Rule: tried, Key: "never " + secret, Cost: 2}}, "limit=1 per 1h outcome=denied rule=tried source=store"},
		{headgate.OpPeek, []headgate.Check{check}, "limit=2 per 1m outcome=denied retry_after_ms=60000 rule=login source=store"},
		{headgate.OpReset, []headgate.Check{check}, "outcome=allowed"},
	} {
		r.spans.Reset()
		take(tt.op, tt.checks...)
		spans := r.spans.GetSpans()
		if len(spans) != 2 {
			t.Fatalf("%v: %d spans", tt.op, len(spans))
		}
		call, caller := spans[0], spans[1]
		if call.Name != "headgate."+tt.op.String() || call.Parent.SpanID() != caller.SpanContext.SpanID() || call.Status.Code != codes.Unset || call.EndTime.Before(call.StartTime) {
			t.Errorf("%v: %+v", tt.op, call)
		}
		want := map[bool]string{true: attributes(&call), false: ""}[tt.op == headgate.OpTake]
		if got := attributes(&call); got != tt.want || attributes(&caller) != want {
			t.Errorf("%v of %d checks: %s, and the caller's %q; want %s", tt.op, len(tt.checks), got, attributes(&caller), tt.want)
		}
		silent(t, spans)
	}
}

// silent fails if a span holds the key of a check.
func silent(t *testing.T, spans tracetest.SpanStubs) {
	t.Helper()
	if text := fmt.Sprintf("%+v", spans); strings.Contains(text, secret) {
		t.Errorf("a span holds a key: %s", text)
	}
}

type broken struct{ err error }

func (b broken) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	return nil, b.err
}

// TestErrors: what failed is said in words of ours, because an error may quote a key.
func TestErrors(t *testing.T) {
	r := record(t)
	for err, want := range map[error]string{
		fmt.Errorf("%w: %s", headgate.ErrUnavailable, secret): "the store did not answer",
		context.DeadlineExceeded:                              "the store did not answer",
		context.Canceled:                                      "the caller went away",
		fmt.Errorf("%w: %s", headgate.ErrInvalid, secret):     "the checks are invalid",
		errors.New(secret):                                    "no decision",
	} {
		r.spans.Reset()
		ctx, span := r.tracer.Start(t.Context(), "caller")
		if _, got := headgate.Observe(broken{err}, r.Hooks()).Take(ctx, headgate.OpTake, nil, nil); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
		span.End()
		spans := r.spans.GetSpans()
		if s := spans[0]; s.Status.Code != codes.Error || s.Status.Description != want || attributes(&s) != "outcome=error" || attributes(&spans[1]) != "outcome=error" {
			t.Errorf("%v: %+v", err, s)
		}
		silent(t, spans)
	}
}

// TestMetrics: decisions are counted by limit and outcome, and calls by operation.
func TestMetrics(t *testing.T) {
	r := record(t)
	store := headgate.Observe(memory.New(), r.Hooks())
	login := headgate.MustRule("login", headgate.Sliding(2, time.Hour), headgate.PerHour(100))
	for range 3 {
		if _, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{
			{Rule: login, Key: secret, Cost: 1}, {Rule: headgate.MustRule("tried", headgate.PerHour(1)), Key: secret, Cost: 2, Shadow: true},
		}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := headgate.Observe(broken{headgate.ErrUnavailable}, r.Hooks()).Take(t.Context(), headgate.OpPeek, nil, nil); err == nil {
		t.Fatal("a broken store decides")
	}
	var all metricdata.ResourceMetrics
	if err := r.metrics.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int64)
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				got[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				got[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = int64(p.Count)
			}
		}
	}
	want := map[string]int64{
		"headgate.decisions limit=2 per 1h,outcome=allowed,rule=login":       2,
		"headgate.decisions limit=2 per 1h,outcome=denied,rule=login":        1,
		"headgate.decisions limit=100 per 1h,outcome=allowed,rule=login":     2,
		"headgate.decisions limit=100 per 1h,outcome=uncharged,rule=login":   1,
		"headgate.decisions limit=1 per 1h,outcome=shadow_denied,rule=tried": 3,
		"headgate.store.duration op=take":                                    3,
		"headgate.store.duration op=peek":                                    1,
		"headgate.store.errors op=peek":                                      1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestHTTP: a trace passes from a client through a proxy to the server behind it, and the
// proxy's span says what was decided.
func TestHTTP(t *testing.T) {
	r := record(t)
	limiter := headgate.New(headgate.Observe(memory.New(), r.Hooks()), headgate.MustRule("pages", headgate.PerHour(1)))
	behind := make(chan string, 2)
	proxy := httptest.NewServer(r.Handler("proxy", http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		verdict, err := limiter.Allow(request.Context(), secret)
		if err != nil {
			t.Error(err)
		}
		behind <- request.Header.Get("Traceparent")
		if !verdict.Allowed {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})))
	defer proxy.Close()
	client := &http.Client{Transport: r.Transport("ask", nil)}
	defer client.CloseIdleConnections()
	for _, want := range []string{"allowed", "denied"} {
		r.spans.Reset()
		request, err := http.NewRequestWithContext(t.Context(), "BREW", proxy.URL+"/"+secret, strings.NewReader(secret))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if request.Header.Get("Traceparent") != "" {
			t.Error("the caller's request was changed")
		}
		header := <-behind
		byName := make(map[string]tracetest.SpanStub)
		for end := time.Now().Add(2 * time.Minute); len(byName) < 3 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			for _, span := range r.spans.GetSpans() {
				byName[span.Name] = span
			}
		}
		ask, door, call := byName["ask"], byName["proxy"], byName["headgate.take"]
		if door.Parent.SpanID() != ask.SpanContext.SpanID() || call.Parent.SpanID() != door.SpanContext.SpanID() || !door.Parent.IsRemote() {
			t.Errorf("the spans are not below each other: %+v", byName)
		}
		if !strings.Contains(header, door.SpanContext.TraceID().String()+"-"+door.SpanContext.SpanID().String()) {
			t.Errorf("what is behind the proxy gets %q", header)
		}
		if got := attributes(&door); !strings.Contains(got, "outcome="+want) || !strings.Contains(got, "rule=pages") || !strings.Contains(got, "http.request.method=_OTHER") ||
			!strings.Contains(got, "url.scheme=http") || !strings.Contains(got, fmt.Sprintf("http.response.status_code=%d", map[string]int{"allowed": 200, "denied": 429}[want])) {
			t.Errorf("the proxy's span has %s", got)
		}
		silent(t, r.spans.GetSpans())
	}
}

// routed is a handler that fails, with a route.
type routed struct{}

func (routed) Route(*http.Request) string { return "/v1/check" }
func (routed) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusEarlyHints)
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = http.NewResponseController(w).Flush()
}

// TestConventions: spans follow the semantic conventions for HTTP servers and for clients of databases.
func TestConventions(t *testing.T) {
	r := record(t)
	answer := httptest.NewRecorder()
	r.Handler("door", routed{}).ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "https://localhost/"+secret, nil))
	door := r.spans.GetSpans()[0]
	if got := attributes(&door); got != "http.request.method=POST http.response.status_code=503 http.route=/v1/check url.scheme=https" || door.SpanKind != trace.SpanKindServer || door.Status.Code != codes.Error || !answer.Flushed {
		t.Errorf("the door's span is %s: %+v", got, door)
	}

	rule := headgate.MustRule("login", headgate.PerHour(5))
	for source, want := range map[headgate.Source]trace.SpanKind{headgate.SourceStore: trace.SpanKindClient, headgate.SourceLease: trace.SpanKindInternal} {
		r.spans.Reset()
		telemetry, err := otel.New(otel.Options{Tracer: r.provider, System: "redis"})
		if err != nil {
			t.Fatal(err)
		}
		telemetry.Hooks().Decided(t.Context(), headgate.OpTake, nil, []headgate.Decision{{Rule: rule, Limit: &rule.Limits()[0], Allowed: true, Source: source}}, time.Millisecond)
		if span := r.spans.GetSpans()[0]; span.SpanKind != want || strings.Contains(attributes(&span), "db.system.name=redis") != (want == trace.SpanKindClient) {
			t.Errorf("%v: %v with %s", source, span.SpanKind, attributes(&span))
		}
	}
}

// TestNone: without providers nothing is recorded, and a trace passes through all the same.
func TestNone(t *testing.T) {
	telemetry, err := otel.New(otel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	request.Header.Set("Traceparent", parent)
	store := headgate.Observe(memory.New(), telemetry.Hooks())
	telemetry.Handler("door", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := store.Take(r.Context(), headgate.OpTake, []headgate.Check{{Rule: headgate.MustRule("all", headgate.PerHour(1)), Cost: 1}}, nil); err != nil {
			t.Error(err)
		}
		if got := r.Header.Get("Traceparent"); got != parent {
			t.Errorf("it became %q", got)
		}
	})).ServeHTTP(httptest.NewRecorder(), request)
}

// TestSpent: what a call of a model has used is in metrics named as OpenTelemetry names them and on the
// span, by the policy's name for the model and without any key.
func TestSpent(t *testing.T) {
	r := record(t)
	rule := headgate.MustRule("budget", headgate.PerMinute(1000))
	set, err := policy.New([]policy.Rule{{Limits: rule, Counts: models.Money}}, policy.Models(models.Model{Name: "m*", Priced: true, Input: 1_000_000, Output: 2_000_000}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := r.tracer.Start(t.Context(), "call")
	reserved := headgate.Reservation{Checks: []headgate.Check{{Rule: rule, Key: secret, Cost: 50}}}
	used := models.Usage{Model: "m1", Input: 20, Output: 3}
	s := set.Spending(used, true, &reserved, []int64{26})
	s.FirstChunk = time.Second
	r.Spent(ctx, s)
	span.End()
	r.Spent(t.Context(), set.Spending(used, false, &reserved, []int64{50}))
	got := map[string]string{}
	var all metricdata.ResourceMetrics
	if err := r.metrics.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					got[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = fmt.Sprintf("%g", p.Value)
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					got[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = fmt.Sprint(p.Sum)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					got[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = fmt.Sprint(p.Sum)
				}
			}
		}
	}
	want := map[string]string{
		"gen_ai.client.token.usage gen_ai.request.model=m*,gen_ai.token.type=input":  "20",
		"gen_ai.client.token.usage gen_ai.request.model=m*,gen_ai.token.type=output": "3",
		"gen_ai.client.operation.time_to_first_chunk gen_ai.request.model=m*":        "1",
		"headgate.llm.money gen_ai.request.model=m*":                                 "2.6e-05",
		"headgate.llm.charged by=estimate,counts=money,rule=budget":                  "5e-05",
		"headgate.llm.charged by=usage,counts=money,rule=budget":                     "2.6e-05",
	}
	if !maps.Equal(got, want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
	spans := r.spans.GetSpans()
	if got, want := attributes(&spans[0]), "gen_ai.request.model=m* gen_ai.usage.input_tokens=20 gen_ai.usage.output_tokens=3"; got != want {
		t.Errorf("the span has %s, want %s", got, want)
	}
}
