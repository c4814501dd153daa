package envoyrlqs

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store"
)

const (
	// TTL is how long an Envoy uses an assignment after it has received it. Envoys report every five
	// seconds, and each report renews what was assigned.
	TTL = 10 * time.Second
	// Grace is how long an assignment may take to be applied. What was assigned counts for TTL and
	// Grace.
	Grace = 2 * time.Second
	// MaxBuckets is how many buckets one stream may report.
	MaxBuckets = 10_000
	// MaxDomain is the longest domain, in bytes.
	MaxDomain = 255

	// lookEvery is how often a stream looks whether more has become free, or the policy has changed.
	lookEvery = time.Second
	// warnEvery is how often the same failure is logged at most.
	warnEvery = 10 * time.Second
)

// Options are the settings of a service.
type Options struct {
	// Rules returns the policy in force. Required.
	Rules func() decide.Policy
	// Documents keeps the shares. If it is nil, the store keeps no documents, and every stream is
	// refused.
	Documents store.Documents
	// Ending is closed when the server shuts down. Envoys then connect to another one.
	Ending <-chan struct{}
	// Assigned is called for each answer to an Envoy about one bucket. It must be quick and safe for
	// concurrent use. Nil means that nothing is called.
	Assigned func(Kind)
	// Logger gets failures. Nil means none.
	Logger *slog.Logger
}

// Kind is what an Envoy is told about a bucket.
type Kind uint8

// The kinds of answers.
const (
	// Share is a token bucket.
	Share Kind = iota
	// AllowAll says that no rule binds the bucket.
	AllowAll
	// DenyAll says that a list denies the bucket, or that nothing of its limit is free.
	DenyAll
	// Undivided means that a limit of the bucket cannot be divided. The Envoy gets no answer.
	Undivided
	// Failed means that the store did not answer. The Envoy gets no answer.
	Failed

	// Kinds is the number of kinds.
	Kinds
)

// String returns "share", "allow_all", "deny_all", "undivided" or "failed".
func (k Kind) String() string {
	return [...]string{"share", "allow_all", "deny_all", "undivided", "failed"}[k]
}

// Service answers reports. It is safe for concurrent use; make it with [New].
type Service struct {
	options Options
	shares  shares
	// name begins the names of all holders of this process.
	name    string
	streams atomic.Int64 // opened so far
	open    atomic.Int64
	warned  atomic.Int64 // when the last failure was logged
}

// New returns a service.
func New(options Options) *Service {
	if options.Assigned == nil {
		options.Assigned = func(Kind) {}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{options: options, shares: shares{documents: options.Documents}, name: strconv.FormatUint(rand.Uint64(), 36)}
}

// Register adds the service to a gRPC server.
func (s *Service) Register(to grpc.ServiceRegistrar) { pb.RegisterRateLimitQuotaServiceServer(to, s) }

// Streams is how many Envoys are connected, once for each domain.
func (s *Service) Streams() int64 { return s.open.Load() }

// StreamRateLimitQuotas serves one Envoy and one domain, until either side ends.
func (s *Service) StreamRateLimitQuotas(wire grpc.BidiStreamingServer[pb.RateLimitQuotaUsageReports, pb.RateLimitQuotaResponse]) error {
	if s.options.Documents == nil {
		return status.Error(codes.FailedPrecondition, "the store keeps no shares; use memory, Redis or Valkey, or PostgreSQL")
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	ctx, cancel := context.WithCancel(wire.Context())
	defer cancel()
	x := &stream{service: s, id: s.name + "." + strconv.FormatInt(s.streams.Add(1), 36), began: time.Now(), held: make(map[string]*held)}
	reports, gone := make(chan *pb.RateLimitQuotaUsageReports), make(chan struct{})
	go func() { // It ends with the stream, which ends when this method returns.
		defer close(gone)
		for {
			r, err := wire.Recv()
			if err != nil {
				return
			}
			select {
			case reports <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		var answer *pb.RateLimitQuotaResponse
		var err error
		select {
		case <-s.options.Ending:
			return status.Error(codes.Unavailable, "the server is shutting down")
		case <-gone:
			return nil // The Envoy has gone; its share ends by itself.
		case r := <-reports:
			answer, err = x.report(ctx, r)
		case <-look.C:
			answer = x.look(ctx)
		}
		if err == nil && len(answer.GetBucketAction()) > 0 {
			err = wire.Send(answer)
		}
		if err != nil {
			return err
		}
	}
}

// fail counts a failure, and logs it now and then.
func (s *Service) fail(ctx context.Context, kind Kind, err error) {
	s.options.Assigned(kind)
	now, last := time.Now().UnixNano(), s.warned.Load()
	if now-last > int64(warnEvery) && s.warned.CompareAndSwap(last, now) {
		s.options.Logger.WarnContext(ctx, "an Envoy's quota was not assigned; it denies or admits as its own configuration says", slog.String("kind", kind.String()), slog.Any("error", err))
	}
}

// checked returns the errors of reports that no Envoy sends.
func checked(r *pb.RateLimitQuotaUsageReports, domain string) error {
	switch n := len(r.GetBucketQuotaUsages()); {
	case domain == "":
		return status.Error(codes.InvalidArgument, "the first report has no domain")
	case len(domain) > MaxDomain:
		return status.Errorf(codes.InvalidArgument, "the domain has %d bytes, must have at most %d", len(domain), MaxDomain)
	case r.GetDomain() != "" && r.GetDomain() != domain:
		return status.Errorf(codes.InvalidArgument, "the domain is %s, and was %s before; open a stream for each domain", policy.Quote(r.GetDomain()), policy.Quote(domain))
	case n > MaxBuckets:
		return status.Errorf(codes.InvalidArgument, "the report has %d buckets, must have at most %d", n, MaxBuckets)
	}
	return nil
}
