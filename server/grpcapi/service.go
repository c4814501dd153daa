package grpcapi

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/server/decide"
)

// Options are the settings of a service. The zero Options are good for tests.
type Options struct {
	// SideBySide has the checks of one stream, and those of one batch, decided concurrently rather
	// than one after another. It is for deciders that ask a store across a network.
	SideBySide bool
	// Ending is closed when the server begins to shut down, because a graceful stop of the gRPC server
	// would wait for streams. Nil means never.
	Ending <-chan struct{}
}

// The bounds of a service.
const (
	// MaxTogether is the maximum number of requests in a batch, or in one message of a stream.
	MaxTogether = 256
	// maxSideBySide is the maximum number of requests of one stream or batch that are decided at the
	// same time.
	maxSideBySide = 128
)

// Service answers requests by the rules in force. It is safe for concurrent use;
// make one with [New].
type Service struct {
	headgatev1.UnimplementedHeadgateServer

	streams
	decider decide.Decider
	texts   *decide.Texts[limitText]
	pool    pool[*decide.Request]
}

var _ headgatev1.HeadgateServer = (*Service)(nil)

// New returns a service that asks decider.
func New(decider decide.Decider, options Options) *Service {
	return &Service{
		streams: newStreams(options), decider: decider, texts: decide.NewTexts(newLimitText),
		pool: newPool(func() *decide.Request { return new(decide.Request) }),
	}
}

// Register adds the service to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) { headgatev1.RegisterHeadgateServer(r, s) }

// pool has memory for requests, which later requests reuse.
type pool[T interface{ Reset() }] struct{ *sync.Pool }

func newPool[T interface{ Reset() }](made func() T) pool[T] {
	return pool[T]{&sync.Pool{New: func() any { return made() }}}
}

func (p pool[T]) get() T { return p.Get().(T) }

// put clears the memory and returns it. It is not deferred, because after a panic the memory may still
// be referenced.
func (p pool[T]) put(r T) {
	r.Reset()
	p.Put(r)
}

// with calls do with memory from the pool.
func with[T interface{ Reset() }, A any](p pool[T], do func(T) (A, error)) (A, error) {
	r := p.get()
	answer, err := do(r)
	p.put(r)
	return answer, err
}

// decide carries out the request, which must have been read. The error is a gRPC status.
func (s *Service) decide(ctx context.Context, op headgate.Op, r *decide.Request) (*decide.Outcome, error) {
	complete(r)
	r.Op = op
	o := r.Decide(ctx, s.decider)
	return o, statusOf(ctx, r.Faults, o)
}

// Check implements the service.
func (s *Service) Check(ctx context.Context, m *headgatev1.CheckRequest) (*headgatev1.Verdict, error) {
	return with(s.pool, func(r *decide.Request) (*headgatev1.Verdict, error) {
		read(r, m.GetEntries(), m.GetChecks(), m.Cost, m.GetUsage())
		setTerms(r, m.GetId(), m.GetLifetimeMs())
		return s.verdict(ctx, headgate.OpTake, r)
	})
}

// Peek implements the service.
func (s *Service) Peek(ctx context.Context, m *headgatev1.PeekRequest) (*headgatev1.Verdict, error) {
	return with(s.pool, func(r *decide.Request) (*headgatev1.Verdict, error) {
		read(r, m.GetEntries(), m.GetChecks(), m.Cost, m.GetUsage())
		return s.verdict(ctx, headgate.OpPeek, r)
	})
}

// Refund implements the service.
func (s *Service) Refund(ctx context.Context, m *headgatev1.RefundRequest) (*headgatev1.Verdict, error) {
	return with(s.pool, func(r *decide.Request) (*headgatev1.Verdict, error) {
		read(r, m.GetEntries(), m.GetChecks(), m.Cost, m.GetUsage())
		if r.At = m.GetAt(); r.At != 0 {
			r.Given |= decide.GivenAt
		}
		return s.verdict(ctx, headgate.OpRefund, r)
	})
}

// verdict carries out the request, and builds the answer.
func (s *Service) verdict(ctx context.Context, op headgate.Op, r *decide.Request) (*headgatev1.Verdict, error) {
	o, err := s.decide(ctx, op, r)
	if err != nil {
		return nil, err
	}
	return s.newVerdict(r.Policy.Set, o), nil
}

// Reset implements the service.
func (s *Service) Reset(ctx context.Context, m *headgatev1.ResetRequest) (*headgatev1.ResetResponse, error) {
	return with(s.pool, func(r *decide.Request) (*headgatev1.ResetResponse, error) {
		read(r, m.GetEntries(), m.GetChecks(), nil, nil)
		if _, err := s.decide(ctx, headgate.OpReset, r); err != nil {
			return nil, err
		}
		answer := &headgatev1.ResetResponse{Rules: make([]string, len(r.Checks))}
		for i := range r.Checks {
			answer.Rules[i] = r.Checks[i].Rule.Name()
		}
		return answer, nil
	})
}

// Reserve implements the service.
func (s *Service) Reserve(ctx context.Context, m *headgatev1.ReserveRequest) (*headgatev1.ReserveResponse, error) {
	return with(s.pool, func(r *decide.Request) (*headgatev1.ReserveResponse, error) {
		read(r, m.GetEntries(), m.GetChecks(), m.Cost, m.GetUsage())
		setTerms(r, m.GetId(), m.GetLifetimeMs())
		r.Reserve = true
		o, err := s.decide(ctx, headgate.OpTake, r)
		if err != nil {
			return nil, err
		}
		answer := &headgatev1.ReserveResponse{Verdict: s.newVerdict(r.Policy.Set, o)}
		if o.Reservation != "" {
			answer.Reservation, answer.ExpiresInMs = o.Reservation, o.ExpiresInMS()
		}
		return answer, nil
	})
}

// Settle implements the service.
func (s *Service) Settle(ctx context.Context, m *headgatev1.SettleRequest) (*headgatev1.Verdict, error) {
	to := decide.Settlement{Reservation: m.GetReservation(), Cost: m.GetCost(), Status: int64(m.GetStatus())}
	if m.Cost != nil {
		to.Given |= decide.GivenCost
	}
	if to.Status != 0 {
		to.Given |= decide.GivenStatus
	}
	if m.GetUsage() != nil {
		to.Usage = newUsage(m.GetUsage())
		to.Given |= decide.GivenUsage
	}
	return s.settle(ctx, to)
}

// Cancel implements the service.
func (s *Service) Cancel(ctx context.Context, m *headgatev1.CancelRequest) (*headgatev1.Verdict, error) {
	return s.settle(ctx, decide.Settlement{Reservation: m.GetReservation(), Given: decide.GivenCost})
}

func (s *Service) settle(ctx context.Context, to decide.Settlement) (*headgatev1.Verdict, error) {
	return with(s.pool, func(r *decide.Request) (*headgatev1.Verdict, error) {
		o := r.Settle(ctx, s.decider, to)
		if err := statusOf(ctx, r.Faults, o); err != nil {
			return nil, err
		}
		return s.newVerdict(r.Policy.Set, o), nil
	})
}
