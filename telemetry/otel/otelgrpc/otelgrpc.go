// Package otelgrpc passes traces on over gRPC: from a client that asks a service of Headgate,
// and into a server whose calls are limited.
//
// # Basics
//
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(otelgrpc.UnaryServer(telemetry), limit.Unary))
//	conn, err := grpc.NewClient(target, grpc.WithUnaryInterceptor(otelgrpc.UnaryClient(telemetry)))
//
// # Caveats
//
// The names of spans are those of methods, so a server that answers methods which it does not
// know makes spans with names that its clients have made up.
package otelgrpc

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/telemetry/otel"
)

// carrier has the headers of a call.
type carrier metadata.MD

// Get implements [propagation.TextMapCarrier].
func (c carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set implements [propagation.TextMapCarrier].
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys implements [propagation.TextMapCarrier].
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

// UnaryServer gives each call a span, below the one that its headers name.
func UnaryServer(t *otel.Telemetry) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, span := serve(ctx, t, info.FullMethod)
		defer span.End()
		answer, err := next(ctx, request)
		ended(span, err)
		return answer, err
	}
}

// StreamServer gives each stream a span, below the one that its headers name.
func StreamServer(t *otel.Telemetry) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, span := serve(stream.Context(), t, info.FullMethod)
		defer span.End()
		err := next(server, &traced{stream, ctx})
		ended(span, err)
		return err
	}
}

// UnaryClient sends the trace of each call's context in its headers, and gives it a span.
func UnaryClient(t *otel.Telemetry) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, name string, request, answer any, conn *grpc.ClientConn, next grpc.UnaryInvoker, options ...grpc.CallOption) error {
		ctx, span := call(ctx, t, name)
		defer span.End()
		err := next(ctx, name, request, answer, conn, options...)
		ended(span, err)
		return err
	}
}

// StreamClient sends the trace of each stream's context in its headers. Its span ends when
// the stream has begun.
func StreamClient(t *otel.Telemetry) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, name string, next grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, span := call(ctx, t, name)
		defer span.End()
		stream, err := next(ctx, desc, conn, name, options...)
		ended(span, err)
		return stream, err
	}
}

func serve(ctx context.Context, t *otel.Telemetry, name string) (context.Context, trace.Span) {
	headers, _ := metadata.FromIncomingContext(ctx)
	return t.Serve(ctx, name, carrier(headers))
}

func call(ctx context.Context, t *otel.Telemetry, name string) (context.Context, trace.Span) {
	headers, _ := metadata.FromOutgoingContext(ctx)
	if headers = headers.Copy(); headers == nil {
		headers = metadata.MD{}
	}
	ctx, span := t.Call(ctx, name, carrier(headers))
	return metadata.NewOutgoingContext(ctx, headers), span
}

// ended says how a call has ended, without its text, which may quote what clients sent.
func ended(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, status.Code(err).String())
	}
}

type traced struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // That of the stream.
}

func (s *traced) Context() context.Context { return s.ctx }
