package grpclimit

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

// Server limits the calls that a gRPC server receives. It is immutable and safe for
// concurrent use; make one with [NewServer].
type Server struct {
	settings
	store headgate.Store
	// ledger is the store, if calls are settled.
	ledger  headgate.Ledger
	calls   compiled
	streams compiled // their messages
	facts   []*fact
	// wantsKey says that something looks at the API key of the metadata.
	wantsKey bool
	pool     sync.Pool // of *scratch
	sleep    func(context.Context, time.Duration) error
}

// scratch is what one decision needs and the next can use again.
type scratch struct {
	facts     policy.Descriptor
	checks    []headgate.Check
	decisions []headgate.Decision
}

// NewServer returns interceptors that let through what the store admits. At least
// one [Limit], one [MessageLimit] or a [Policy] is needed. The error is a
// [*headgate.InvalidError] with every mistake in the options.
func NewServer(store headgate.Store, options ...Option) (*Server, error) {
	s := &Server{store: store, sleep: sleep, settings: settings{
		reader:   reader{resolver: new(resolver), apiKeys: []string{authorization, "x-api-key"}},
		ipv6Bits: httplimit.DefaultIPv6Prefix,
		maxDelay: httplimit.DefaultMaxDelay,
		denied:   exhausted,
	}}
	for _, o := range options {
		o(&s.settings)
	}
	if store == nil {
		s.bad("the store is nil")
	}
	if len(s.limits)+len(s.messages) == 0 && s.set == nil {
		s.bad("nothing is limited; give a Limit, a MessageLimit or a Policy")
	}
	if len(s.messages) == 0 && (s.hold != 0 || s.messageCost != nil) {
		s.bad("HoldMessages and MessageCost are for messages, which nothing limits; give a MessageLimit")
	}
	if s.settle != nil {
		if s.ledger, _ = store.(headgate.Ledger); s.ledger == nil && store != nil {
			s.bad("Settle needs a store that remembers requests, and %T does not", store)
		}
	}
	c := newCompiler(&s.settings, known)
	if s.missing == CountMissingByIP {
		c.Need(factIP)
	}
	s.calls, s.streams = c.compile("Limit", s.limits), c.compile("MessageLimit", s.messages)
	s.facts = c.Facts()
	s.wantsKey = slices.Contains(s.facts, factAPIKey)
	if err := s.problems.Err("interceptor"); err != nil {
		return nil, err
	}
	s.pool.New = func() any { return new(scratch) }
	return s, nil
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
	defer func() { p.end(end) }()
	reply, err = handler(p.context(ctx), request)
	if end.Code = codeOf(err); err == nil {
		end.Reply, end.Sent = reply, 1
	}
	return reply, err
}

// Stream is a grpc.StreamServerInterceptor.
func (s *Server) Stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	call := &Call{Method: info.FullMethod, ctx: stream.Context()}
	p, err := s.enter(call)
	if err != nil {
		return err
	}
	if p == nil && len(s.messages) == 0 {
		return handler(service, stream)
	}
	seen := &serverStream{ServerStream: stream, limits: s, call: call, ctx: stream.Context()}
	if p == nil {
		return handler(service, seen)
	}
	seen.ctx = p.context(seen.ctx)
	end := End{Code: codes.Internal} // as a panic ends
	defer func() {
		end.Received, end.Sent = seen.received.Load(), seen.sent.Load()
		p.end(end)
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

// sleep waits for d or for the context, whichever ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
