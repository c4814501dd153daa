package otel

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

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
