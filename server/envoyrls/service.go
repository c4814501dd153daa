package envoyrls

import (
	"context"
	"errors"
	"net/http"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/wire"
)

// The bounds on a request, besides its size in bytes.
const (
	// MaxDescriptors is the maximum number of descriptors in a request.
	MaxDescriptors = headgate.MaxChecks
	// MaxEntries is the maximum number of entries in a descriptor.
	MaxEntries = policy.MaxEntries
)

// Options are the settings of a service.
type Options struct {
	// Dialect selects the headers in response_headers_to_add that tell clients their limits.
	Dialect httplimit.Dialect
	// Independent charges each descriptor separately, whatever happens to the others, as
	// envoyproxy/ratelimit does. A cost that does not fit then takes what is left of the limit, so
	// that units that are reported after their use are not lost.
	Independent bool
	// RefusedReport is called for each request that looks like a report of units that were used
	// already, and was refused because it is charged all or nothing. It gets the name of a rule that
	// binds the request. It must be quick and safe for concurrent use. Nil means that nothing is
	// called.
	RefusedReport func(rule string)
	// Hit is called for each descriptor that asks for units of a nested limit. It must be quick and
	// safe for concurrent use. Nil means that nothing is called.
	Hit func(Hit)
}

// Hit is what a descriptor asked of a nested limit. Peeks and refunds are none.
type Hit struct {
	// Limit is the name of the limit's rule. Measured is the name to measure the descriptor by if its limit is to be
	// measured by values too (detailed_metric, value_to_metric); else it is empty. Measured names
	// come from callers, so their number is unbounded.
	Limit, Measured string
	Became          Became
	Units           int64
	// Count is how many units the limit grants in a window, and Used how many of them are used, these
	// included.
	Count, Used int64
}

// Became is the outcome of a limit for a descriptor.
type Became uint8

const (
	// Within means that the limit admits the descriptor.
	Within Became = iota
	// Over means that the descriptor is over the limit.
	Over
	// OverInShadow means that the descriptor is over a limit that does not deny.
	OverInShadow
)

// Service answers requests. It is safe for concurrent use; make one with [New].
type Service struct {
	decider   decide.Decider
	options   Options
	overrides overrides
	reports   decide.Reports
	calls     *wire.Unary[*scratch]
}

// New returns a service that asks decider.
func New(decider decide.Decider, options Options) *Service {
	s := &Service{decider: decider, options: options, reports: decide.Reports{Refused: options.RefusedReport}}
	s.calls = wire.NewUnary(s, pb.RateLimitService_ShouldRateLimit_FullMethodName, func() *scratch { return &scratch{header: make(http.Header)} }, s.answer)
	return s
}

// Register adds the service to a gRPC server, which must have the codec of package wire.
func (s *Service) Register(to grpc.ServiceRegistrar) {
	s.calls.Register(to, pb.RateLimitService_ServiceDesc, "ShouldRateLimit")
}

func (s *Service) answer(ctx context.Context, q *scratch) (any, error) {
	if err := q.request.check(); err != nil {
		return nil, err
	}
	if err := s.ask(q); err != nil {
		return nil, failed(ctx, decide.Fail(ctx, err))
	}
	o := q.ask.Decide(ctx, s.decider)
	if o.Kind != decide.Decided {
		return nil, failed(ctx, o)
	}
	if s.options.Hit != nil && q.ask.Policy.Nested != nil {
		s.hits(q)
	}
	return s.write(q, o), nil
}

// hits calls Hit for the descriptors that have a limit.
func (s *Service) hits(q *scratch) {
	for i := range q.parts.List {
		p := &q.parts.List[i]
		if p.Leaf == nil || p.Unlimited || p.Op != headgate.OpTake {
			continue
		}
		h := Hit{Units: p.Cost}
		over := p.Denies
		for _, d := range q.parts.Decisions(p) {
			over = over || !d.Allowed
			h.Limit, h.Count, h.Used = d.Rule.Name(), d.Limit.Count, d.Limit.Count-d.Remaining
		}
		switch {
		case over && (p.Leaf.Shadow || p.Leaf.Quota):
			h.Became = OverInShadow
		case over:
			h.Became = Over
		}
		if p.Leaf.Measured {
			h.Measured = q.ask.Policy.Nested.Measure(q.parts.Domain, p.Entries)
		}
		s.options.Hit(h)
	}
}

// check returns an error if the request breaks a bound or has no domain.
func (r *request) check() error {
	switch {
	case r.domain == "":
		return status.Error(codes.InvalidArgument, "the domain is empty")
	case r.sent == 0 || r.sent > MaxDescriptors:
		return status.Errorf(codes.InvalidArgument, "there are %d descriptors, must be 1 to %d", r.sent, MaxDescriptors)
	}
	for i := range r.descriptors {
		d := &r.descriptors[i]
		if d.sent > MaxEntries {
			return status.Errorf(codes.InvalidArgument, "descriptor %d has %d entries, must have at most %d", i+1, d.sent, MaxEntries)
		}
	}
	return nil
}

// failed returns the gRPC error for a request without a verdict.
func failed(ctx context.Context, o *decide.Outcome) error {
	var descriptor *decide.DescriptorError
	switch {
	case o.Kind == decide.Gone:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(o.Err, errOverrides):
		return status.Error(codes.ResourceExhausted, o.Err.Error())
	case errors.As(o.Err, &descriptor):
		return status.Error(codes.InvalidArgument, descriptor.Error())
	case o.Kind == decide.Refused:
		return status.Error(codes.InvalidArgument, o.Text())
	case errors.Is(o.Err, headgate.ErrUnavailable):
		return status.Error(codes.Unavailable, o.Text())
	}
	return status.Error(codes.Internal, "the request could not be decided")
}
