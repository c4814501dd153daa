package grpclimit

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/notice"
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
	p.Done(outcome(ctx, end.Code, err))
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
	if s.load.Streams == nil || !s.load.Streams(call) {
		p.Done(flow.Ignore)
	}
	seen.ctx = p.Context(seen.ctx)
	end := End{Code: codes.Internal} // as a panic ends
	defer func() {
		end.Received, end.Sent = seen.received.Load(), seen.sent.Load()
		s.end(p, end)
	}()
	err = handler(service, seen)
	end.Code = codeOf(err)
	p.Done(outcome(stream.Context(), end.Code, err))
	return err
}

// codeOf is the code that a handler's error ends a call with.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// enter admits a call, or returns the error with which it ends. The passage must be told of the
// call's end; it is nil if the end does not matter.
func (s *Server) enter(c *Call) (*admission.Passage[*Call], error) {
	a := s.calls.Try(c.ctx, c, 0)
	if a.Outcome == admission.Passed {
		s.tell(c, a)
	}
	p, err := a.Passage, s.answer(c, a)
	a.Free()
	return p, err
}

// message admits a message, possibly after a wait, or returns the error with which its stream ends.
func (s *Server) message(c *Call) error {
	a := s.messages.Try(c.ctx, c, s.hold)
	err := s.answer(c, a)
	a.Free()
	return err
}

// answer returns the error with which a call or stream ends, or nil if it goes on.
func (s *Server) answer(c *Call, a *admission.Attempt[*Call]) error {
	switch a.Outcome {
	case admission.Passed:
		return nil
	case admission.Open:
		if s.unenforced != "" {
			s.setHeader(c, s.unenforced, "store-unavailable")
		}
		return nil
	case admission.Lacking:
		return errNobody(a.Entry, &s.reader.apiKeys)
	case admission.Unclear:
		return errUnclear(a.Why)
	case admission.TooLong:
		return errUnclear("What the call gives as its " + a.Entry + " is too long.")
	case admission.Listed:
		return errForbidden()
	case admission.Shed:
		return s.shed(c, a.Rejection)
	case admission.Busy:
		return errBusy(a.Refusal)
	case admission.Denied:
		s.setTrailer(c, &a.Verdict)
		return s.denied(c, a.Verdict)
	}
	return undecided(a)
}

// undecided returns the error of a call for which there is no verdict.
func undecided(a *admission.Attempt[*Call]) error {
	switch a.Outcome {
	case admission.Unavailable:
		return errUnavailable()
	case admission.Ended:
		return status.FromContextError(a.Err).Err()
	}
	return errBroken()
}

// SetCost is for handlers behind an interceptor with [Settle]. It sets the real cost of the call
// whose context this is, for the function of Settle to read. It reports whether there is such an
// interceptor. The last call counts.
func SetCost(ctx context.Context, cost int64) bool { return admission.SetCost[*Call](ctx, cost) }

// end gives the permits back and settles the charge. It takes at most a second after the call's
// context has ended.
func (s *Server) end(p *admission.Passage[*Call], end End) {
	p.End(httpStatus(end.Code), func(c *Call, cost int64) int64 {
		end.Cost = cost
		return s.settle(c, end)
	})
}

// serverStream counts the messages of a stream and limits those of the client.
type serverStream struct {
	grpc.ServerStream
	limits         *Server
	call           *Call
	ctx            context.Context
	received, sent atomic.Int64
}

// Context implements [grpc.ServerStream].
func (s *serverStream) Context() context.Context { return s.ctx }

// SendMsg implements [grpc.ServerStream].
func (s *serverStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.sent.Add(1)
	}
	return err
}

// RecvMsg implements [grpc.ServerStream]. If a message is denied, it returns an error, with which
// the handler should end the stream.
func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.received.Add(1)
	if !s.limits.messages.Limits() {
		return nil
	}
	return s.limits.message(&Call{Method: s.call.Method, Message: m, ctx: s.ctx})
}

// The keys of the metadata in which a trusted peer gives the class and the tenant of a call; see
// [Load].
const (
	ClassKey  = "headgate-class"
	TenantKey = "headgate-tenant"
)

// pushback is the key of the trailer by which a server stops gRPC's own retries: a negative number.
const pushback = "grpc-retry-pushback-ms"

// ReasonShed is the reason in the google.rpc.ErrorInfo of a call that a gate has refused.
const ReasonShed = "SHED"

// Load says how calls are described to the gate of [Through]. With the zero Load, all calls are of
// class [flow.Critical], cost one unit, and have the same tenant.
type Load struct {
	// Describe returns the description of a call. It may be nil. It must not take class or tenant
	// from anything that any client can write.
	Describe func(c *Call) flow.Request
	// Exempt reports whether a call bypasses the gate. It may be nil. Calls of
	// grpc.health.v1.Health always bypass it.
	Exempt func(c *Call) bool
	// Streams reports whether a stream is work that ends by itself, such as a list in parts. It then
	// holds its permit until it ends, and the gate learns of it as of a unary call. A stream whose client
	// reads slowly holds it for that long. Streams may be nil: no stream is such work then.
	Streams func(c *Call) bool
	// Peers makes [ClassKey] and [TenantKey] replace what Describe returns, in calls from the
	// proxies that [TrustProxies] names. In other calls these keys are ignored.
	Peers bool
}

// healthService is the service by which orchestrators ask whether a server is healthy. If a busy
// server refused such a call, the orchestrator would kill it.
const healthService = "grpc.health.v1.Health"

// Through makes calls pass a gate, which bounds how much is in progress. The gate is asked before
// the limits, so that a call that it refuses is not charged. It learns how each unary call has
// ended: OK is a [flow.Success]; DEADLINE_EXCEEDED, UNAVAILABLE and RESOURCE_EXHAUSTED are
// [flow.Overload]; a client that has gone is [flow.Canceled]; all other codes and a panic say nothing
// about load. A handler that knows more uses [Done].
//
// A stream gives its permit back as soon as it has begun, because it lasts as long as its client
// likes. So the gate decides whether streams may begin, and does not count those that have, except
// those that Streams of [Load] names.
//
// A call that is refused ends with UNAVAILABLE and a google.rpc.RetryInfo. Unless the gate says
// that a retry makes sense, it also has the trailer grpc-retry-pushback-ms: -1, which stops gRPC's
// own retries. If the gate refuses because of a rate, the call ends as if a limit had denied it.
//
// With [flow.Shadow] the gate only measures. Through may be given once; use a [flow.Chain] for
// several gates.
func Through(gate flow.Gate, load Load) Option {
	return func(s *settings) {
		switch {
		case gate == nil:
			s.Bad("Through", "Through needs a gate")
		case s.through != nil:
			s.Bad("Through", "Through is given twice; make one gate of several with flow.Chain")
		}
		s.through, s.load = gate, load
	}
}

// Done is for handlers behind an interceptor with [Through]. It gives back the permit of the call
// whose context this is, and tells the gate how the work has ended. Only the first Done of a call
// counts. Done reports whether this was the first.
func Done(ctx context.Context, outcome flow.Outcome) bool {
	return admission.Done[*Call](ctx, outcome)
}

// describe returns the description of a call for the gate; false if the gate is not asked.
func (s *settings) describe(c *Call) (request flow.Request, ok bool) {
	if c.Service() == healthService || s.load.Exempt != nil && s.load.Exempt(c) {
		return request, false
	}
	if s.load.Describe != nil {
		request = s.load.Describe(c)
	}
	if s.load.Peers && s.reader.resolver.trusts(c) {
		admission.Claim(&request, c.Metadata(ClassKey), c.Metadata(TenantKey))
	}
	return request, true
}

// outcome says what the end of a call shows about load.
func outcome(ctx context.Context, code codes.Code, err error) flow.Outcome {
	switch ended := ctx.Err(); {
	case errors.Is(ended, context.Canceled):
		return flow.Canceled
	case ended != nil:
		return flow.Overload
	}
	switch code {
	case codes.OK:
		return flow.Success
	case codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted:
		return flow.Overload
	case codes.Unknown:
		return flow.OutcomeOf(err) // a gate or a store that the handler has asked
	}
	return flow.Ignore
}

// shed returns the error of a call that the gate has refused.
func (s *Server) shed(c *Call, rejection *flow.Rejection) error {
	if denied, ok := errors.AsType[*headgate.DeniedError](rejection.Cause); ok && denied.Decision.Limit != nil {
		v := headgate.NewVerdict([]headgate.Decision{denied.Decision})
		s.setTrailer(c, &v)
		return s.denied(c, v)
	}
	if !rejection.Retry {
		// SetTrailer fails only outside of a call.
		_ = grpc.SetTrailer(c.ctx, metadata.Pairs(pushback, "-1"))
	}
	var details []protoadapt.MessageV1
	if later := notice.Later(rejection.RetryAfter); later != headgate.Never {
		details = append(details, retryIn(later))
	}
	return newStatus(codes.Unavailable, ReasonShed, notice.Crowded, details...)
}
