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
// A denial is no error. A store that does not answer sets the status of its span.
//
// These metrics have the meaning of those of telemetry/prom:
//
//	headgate.decisions        {rule, limit, outcome}
//	headgate.store.duration   {op}, in seconds
//	headgate.store.errors     {op}
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
