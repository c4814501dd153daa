package grpclimit

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/protoadapt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/notice"
)

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
// [flow.Overload]; all other codes, a panic and a client that has gone say nothing about load. A
// handler that knows more uses [Done].
//
// A stream gives its permit back as soon as it has begun, because it lasts as long as its client
// likes. So the gate decides whether streams may begin, and does not count those that have.
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
func outcome(ctx context.Context, code codes.Code) flow.Outcome {
	switch err := ctx.Err(); {
	case errors.Is(err, context.Canceled):
		return flow.Ignore
	case err != nil:
		return flow.Overload
	}
	switch code {
	case codes.OK:
		return flow.Success
	case codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted:
		return flow.Overload
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
