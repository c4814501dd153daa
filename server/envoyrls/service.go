package envoyrls

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// The bounds of a request, besides those of its size.
const (
	// MaxDescriptors is how many descriptors a request may have.
	MaxDescriptors = headgate.MaxChecks
	// MaxEntries is how many entries a descriptor may have.
	MaxEntries = policy.MaxEntries
)

// Options are what a service may be given.
type Options struct {
	// Dialect is how limits are told in response_headers_to_add.
	Dialect httplimit.Dialect
	// Independent charges each limit by itself, whatever the others say, as
	// envoyproxy/ratelimit does. What does not fit then fills the limit up, so
	// that units which are reported after they were used are not lost.
	Independent bool
}

// Service answers requests. It is safe for concurrent use; make one with [New].
type Service struct {
	pb.UnimplementedRateLimitServiceServer

	decider   decide.Decider
	options   Options
	overrides overrides
	pool      sync.Pool // of *scratch
}

// New returns a service that asks decider.
func New(decider decide.Decider, options Options) *Service {
	s := &Service{decider: decider, options: options}
	s.pool.New = func() any { return &scratch{header: make(http.Header)} }
	return s
}

// Register adds the service to a gRPC server.
func (s *Service) Register(to grpc.ServiceRegistrar) { pb.RegisterRateLimitServiceServer(to, s) }

// ShouldRateLimit implements the service.
func (s *Service) ShouldRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	q := s.pool.Get().(*scratch)
	answer, err := s.answer(ctx, r, q)
	// Not deferred: after a panic somebody may still hold the scratch.
	q.reset()
	s.pool.Put(q)
	return answer, err
}

func (s *Service) answer(ctx context.Context, r *pb.RateLimitRequest, q *scratch) (*pb.RateLimitResponse, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	q.policy = s.decider.Policy()
	if err := s.resolve(r, q); err != nil {
		return nil, failed(ctx, err)
	}
	if err := s.decide(ctx, q); err != nil {
		return nil, failed(ctx, err)
	}
	return s.write(q), nil
}

// check returns what is wrong with the form of a request.
func check(r *pb.RateLimitRequest) error {
	switch n := len(r.GetDescriptors()); {
	case r.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "the domain is empty")
	case n == 0 || n > MaxDescriptors:
		return status.Errorf(codes.InvalidArgument, "there are %d descriptors, must be 1 to %d", n, MaxDescriptors)
	}
	for i, d := range r.GetDescriptors() {
		if n := len(d.GetEntries()); n > MaxEntries {
			return status.Errorf(codes.InvalidArgument, "descriptor %d has %d entries, must have at most %d", i+1, n, MaxEntries)
		}
		if n := d.GetHitsAddend().GetValue(); n > headgate.MaxCount {
			return status.Errorf(codes.InvalidArgument, "descriptor %d: hits_addend is %d, must be at most %d", i+1, n, headgate.MaxCount)
		}
	}
	if n := r.GetHitsAddend(); n > headgate.MaxCount {
		return status.Errorf(codes.InvalidArgument, "hits_addend is %d, must be at most %d", n, headgate.MaxCount)
	}
	return nil
}

// failed is the error as callers get it. It repeats nothing of the store's, which
// may name addresses.
func failed(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, policy.ErrUnknownRule), errors.Is(err, headgate.ErrInvalid):
		return status.Error(codes.InvalidArgument, strings.TrimPrefix(err.Error(), "headgate: "))
	case errors.Is(err, errOverrides):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, headgate.ErrUnavailable):
		return status.Error(codes.Unavailable, "the store does not answer; whether the request was charged is not known")
	}
	return status.Error(codes.Internal, "the server could not decide, and its log may say why")
}
