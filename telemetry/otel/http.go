package otel

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Handler gives each request a span with the given name, below the one that its headers name.
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
		if span.IsRecording() {
			span.SetAttributes(method(r.Method))
		}
		t.propagator.Inject(ctx, headers)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

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
