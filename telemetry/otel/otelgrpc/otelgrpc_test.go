package otelgrpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate/telemetry/otel"
	"github.com/headgate/headgate/telemetry/otel/otelgrpc"
)

// TestTrace: a trace passes from a client into a server, for calls and for streams.
func TestTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	telemetry, err := otel.New(otel.Options{Tracer: provider})
	if err != nil {
		t.Fatal(err)
	}
	inside := make(chan trace.SpanContext, 2)
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(otelgrpc.UnaryServer(telemetry), func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			inside <- trace.SpanContextFromContext(ctx)
			return next(ctx, request)
		}),
		grpc.ChainStreamInterceptor(otelgrpc.StreamServer(telemetry), func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			inside <- trace.SpanContextFromContext(stream.Context())
			return next(srv, stream)
		}))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(otelgrpc.UnaryClient(telemetry)), grpc.WithStreamInterceptor(otelgrpc.StreamClient(telemetry)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)

	outgoing := metadata.AppendToOutgoingContext(t.Context(), "other", "kept")
	ctx, root := provider.Tracer("test").Start(outgoing, "caller")
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	// An unknown service is an error, and no error's text is told.
	if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "key-of-anna"}); err == nil {
		t.Error("an unknown service is healthy")
	}
	watched, stop := context.WithCancel(ctx)
	stream, err := client.Watch(watched, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	stop()
	for range 2 {
		if got := <-inside; got.TraceID() != root.SpanContext().TraceID() {
			t.Errorf("inside, the trace is %v", got.TraceID())
		}
	}
	root.End()
	if headers, _ := metadata.FromOutgoingContext(outgoing); headers.Len() != 1 {
		t.Errorf("the caller's headers became %v", headers)
	}
	// Client and server each have a span of each of the two; a server's ends when it likes.
	for end := time.Now().Add(2 * time.Minute); len(spans.GetSpans()) < 5; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("spans: %+v", spans.GetSpans())
		}
	}
	ids := map[trace.SpanID]tracetest.SpanStub{}
	for _, span := range spans.GetSpans() {
		ids[span.SpanContext.SpanID()] = span
	}
	for _, span := range ids {
		switch span.SpanKind {
		case trace.SpanKindServer:
			if parent := ids[span.Parent.SpanID()]; parent.SpanKind != trace.SpanKindClient || parent.Name != span.Name {
				t.Errorf("the server's %s is below %+v", span.Name, parent)
			}
		case trace.SpanKindClient:
			if span.Parent.SpanID() != root.SpanContext().SpanID() {
				t.Errorf("the client's %s is not below the caller's", span.Name)
			}
		}
		if span.Name == "/grpc.health.v1.Health/Check" && span.Status.Description != "NotFound" {
			t.Errorf("%s: %+v", span.Name, span.Status)
		}
	}
}
