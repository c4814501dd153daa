package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/telemetry/otel"
	"github.com/headgate/headgate/telemetry/otel/otelgrpc"
)

// traces makes spans for requests and for calls to the store, and sends them to a collector. A nil
// one makes none and costs nothing.
type traces struct {
	*otel.Telemetry
	provider *sdktrace.TracerProvider
}

// tracesWithin bounds a call to the collector, and the last one when the server ends.
const tracesWithin = 5 * time.Second

// newTraces makes the traces, or returns nil if the settings do not ask for them. The environment
// says which requests are traced (OTEL_TRACES_SAMPLER), as for every program with OpenTelemetry.
func (a *App) newTraces(ctx context.Context) (*traces, error) {
	if a.settings.OTLP == "" {
		return nil, nil
	}
	to, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(a.settings.OTLP), otlptracehttp.WithTimeout(tracesWithin))
	if err != nil {
		return nil, &SettingsError{[]string{"otlp: " + err.Error()}}
	}
	of, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "headgate"), attribute.String("service.version", a.settings.Version), attribute.String("service.instance.id", a.settings.instance()),
	), resource.WithFromEnv())
	if err != nil {
		return nil, &SettingsError{[]string{"otlp: " + err.Error()}}
	}
	t := &traces{provider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(&patient{SpanExporter: to, warned: warned{logger: a.settings.Logger}}), sdktrace.WithResource(of))}
	if t.Telemetry, err = otel.New(otel.Options{Tracer: t.provider, System: a.settings.storeSystem()}); err != nil {
		return nil, err
	}
	return t, nil
}

// storeSystem is the database of the store, as OpenTelemetry's semantic conventions name it, or "" for
// counters in memory.
func (s *Settings) storeSystem() string {
	if s.Store == memoryStore {
		return ""
	}
	b := backendOf(s.Store)
	if b == nil {
		return ""
	}
	return b.system
}

// close sends the spans that were not sent yet.
func (t *traces) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tracesWithin)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // Spans that cannot be sent are no reason not to end.
}

// spent tells the span of a request what its call to a language model has used.
func (t *traces) spent(ctx context.Context, s *models.Spending) {
	if t != nil {
		t.Spent(ctx, s)
	}
}

// http makes spans for the requests of a door, except for those of probes and of Prometheus.
func (t *traces) http(door string, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	traced := t.Handler("headgate "+door, next)
	if door != "http" {
		return traced
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics", "/healthz", "/readyz":
			next.ServeHTTP(w, r)
		default:
			traced.ServeHTTP(w, r)
		}
	})
}

// grpc returns server options that make spans for calls.
func (t *traces) grpc() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(otelgrpc.UnaryServer(t.Telemetry)), grpc.ChainStreamInterceptor(otelgrpc.StreamServer(t.Telemetry))}
}

// resp begins the spans of commands in Redis's protocol, which has no headers for the trace of
// the caller; nil without traces.
func (t *traces) resp() func(context.Context, string) (context.Context, func()) {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, name string) (context.Context, func()) {
		ctx, span := t.Serve(ctx, name, propagation.MapCarrier{})
		return ctx, func() { span.End() }
	}
}

// patient is an exporter that logs its failures, once a minute at most.
type patient struct {
	sdktrace.SpanExporter
	warned
}

// ExportSpans implements [sdktrace.SpanExporter].
func (p *patient) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := p.SpanExporter.ExportSpans(ctx, spans); err != nil && p.due() {
		p.logger.WarnContext(ctx, "traces cannot be sent and are dropped", slog.Any("error", err))
	}
	return nil
}

// otlpMistake returns what is wrong with the URL of a collector, or "".
func otlpMistake(text string) string {
	if text == "" {
		return ""
	}
	if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Sprintf("%q is not a URL such as http://127.0.0.1:4318/v1/traces", text)
	}
	return ""
}
