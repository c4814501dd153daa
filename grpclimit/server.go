package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
)

// Server limits the calls that a gRPC server receives. It is immutable and safe for
// concurrent use; make one with [NewServer].
type Server struct {
	settings
	calls    *admission.Gate[*Call]
	messages *admission.Gate[*Call] // of streams
}

// NewServer returns interceptors that let through what the store admits. At least
// one [Limit], one [MessageLimit], a [Policy] or a gate to pass [Through] is needed; without
// limits the store may be nil. The error is a
// [*headgate.InvalidError] with every mistake in the options.
func NewServer(store headgate.Store, options ...Option) (*Server, error) {
	server := &Server{settings: newSettings(store)}
	s := &server.settings
	s.MaxDelay, s.denied = DefaultMaxDelay, exhausted
	for _, o := range options {
		o(s)
	}
	limited := len(s.limits)+len(s.messageLimits) > 0 || s.Source != nil
	if store == nil && (limited || s.through == nil) {
		s.Bad("store", "the store is nil")
	}
	if !limited && s.through == nil {
		s.Bad("", "nothing is limited; give a Limit, a MessageLimit, a Policy or a gate to pass Through")
	}
	if s.load.Peers && !s.reader.resolver.believes() {
		s.Bad("Through", "Through: class and tenant are read from metadata of trusted peers, but no proxy is trusted; give TrustProxies")
	}
	if len(s.messageLimits) == 0 && (s.hold != 0 || s.messageCost != nil) {
		s.Bad("HoldMessages", "HoldMessages and MessageCost are for messages, which nothing limits; give a MessageLimit")
	}
	s.Known = []*fact{factAPIKey, factIP, factRoute, factMethod, factService, factHost, factCertificate}
	s.Finders = s.reader.finders()
	gates := admission.New(&s.Options,
		admission.Group[*Call]{Option: "Limit", Bindings: s.limits, Cost: s.cost, CostOption: "Cost", UsesPolicy: true, Settles: s.settle != nil, Gate: s.through, Describe: s.describe},
		admission.Group[*Call]{Option: "MessageLimit", Bindings: s.messageLimits, Cost: s.messageCost, CostOption: "MessageCost"})
	if err := s.Problems.Err("interceptor"); err != nil {
		return nil, err
	}
	server.calls, server.messages = gates[0], gates[1]
	return server, nil
}

// Options are both interceptors, for grpc.NewServer, after those that were given
// before: authentication, for instance.
func (s *Server) Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.Unary), grpc.ChainStreamInterceptor(s.Stream)}
}

// Unary is a grpc.UnaryServerInterceptor.
func (s *Server) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
	p, err := s.enter(&Call{Method: info.FullMethod, Message: request, ctx: ctx})
	if err != nil {
		return nil, err
	}
	if p == nil {
		return handler(ctx, request)
	}
	end := End{Code: codes.Internal, Received: 1} // as a panic ends
	defer func() { s.end(p, end) }()
	reply, err = handler(p.Context(ctx), request)
	if end.Code = codeOf(err); err == nil {
		end.Reply, end.Sent = reply, 1
	}
	p.Done(outcome(ctx, end.Code))
	return reply, err
}

// Stream is a grpc.StreamServerInterceptor.
func (s *Server) Stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	call := &Call{Method: info.FullMethod, ctx: stream.Context()}
	p, err := s.enter(call)
	if err != nil {
		return err
	}
	if p == nil && !s.messages.Limits() {
		return handler(service, stream)
	}
	seen := &serverStream{ServerStream: stream, limits: s, call: call, ctx: stream.Context()}
	if p == nil {
		return handler(service, seen)
	}
	p.Done(flow.Ignore)
	seen.ctx = p.Context(seen.ctx)
	end := End{Code: codes.Internal} // as a panic ends
	defer func() {
		end.Received, end.Sent = seen.received.Load(), seen.sent.Load()
		s.end(p, end)
	}()
	err = handler(service, seen)
	end.Code = codeOf(err)
	return err
}

// codeOf is the code that a handler's error ends a call with.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}
