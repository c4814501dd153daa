package grpcapi

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/server/decide"
)

// Options are what a service may be given. The zero Options are good for a test.
type Options struct {
	// SideBySide has the checks of one stream, and those of one batch, decided at
	// the same time rather than one after another: for deciders that ask a store
	// across a network.
	SideBySide bool
	// Ending is closed when the server is being shut down, which would wait for
	// streams otherwise. Nil means never.
	Ending <-chan struct{}
}

// The bounds of a service.
const (
	// MaxTogether is how many requests there may be in a batch or in one message
	// of a stream.
	MaxTogether = 256
	// maxSideBySide is how many of them are decided at the same time.
	maxSideBySide = 128
)

// Service answers requests by the rules in force. It is safe for concurrent use;
// make one with [New].
type Service struct {
	headgatev1.UnimplementedHeadgateServer

	decider decide.Decider
	options Options
	texts   texts
	pool    sync.Pool // of *scratch
	buffers sync.Pool // of *[]byte
	permits permits
}

var _ headgatev1.HeadgateServer = (*Service)(nil)

// New returns a service that asks decider.
func New(decider decide.Decider, options Options) *Service {
	s := &Service{decider: decider, options: options, permits: newPermits()}
	s.pool.New = func() any { return new(scratch) }
	return s
}

// Register adds the service to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) { headgatev1.RegisterHeadgateServer(r, s) }

// scratch is what one request needs and the next can use again.
type scratch struct {
	request   request
	faults    faults
	ask       decide.Ask
	decisions []headgate.Decision
}

func (s *Service) get() *scratch { return s.pool.Get().(*scratch) }

// put gives the scratch back, without what it knows of the request. It is not
// deferred: after a panic somebody may still hold the scratch.
func (s *Service) put(sc *scratch) {
	sc.reset()
	s.pool.Put(sc)
}

func (sc *scratch) reset() {
	sc.request.reset()
	clear(sc.faults)
	clear(sc.ask.Checks)
	clear(sc.ask.Named)
	clear(sc.decisions)
	sc.ask = decide.Ask{Checks: sc.ask.Checks[:0], Named: sc.ask.Named[:0]}
	sc.faults, sc.decisions = sc.faults[:0], sc.decisions[:0]
}

// decide answers the request that stands in the scratch. The error is a status.
func (s *Service) decide(ctx context.Context, op headgate.Op, sc *scratch) error {
	if err := s.resolve(op, sc); err != nil {
		return err
	}
	var err error
	if terms := sc.request.terms(); op == headgate.OpTake && terms.ID != "" {
		sc.decisions, err = s.decider.TakeOnce(ctx, terms, &sc.ask, sc.decisions)
	} else {
		sc.decisions, err = s.decider.Take(ctx, &sc.ask, sc.decisions)
	}
	if err != nil {
		return failed(ctx, err)
	}
	return nil
}

// Check implements the service.
func (s *Service) Check(ctx context.Context, r *headgatev1.CheckRequest) (*headgatev1.Verdict, error) {
	sc := s.get()
	sc.request.readCheck(r)
	return s.verdict(ctx, headgate.OpTake, sc)
}

// Peek implements the service.
func (s *Service) Peek(ctx context.Context, r *headgatev1.PeekRequest) (*headgatev1.Verdict, error) {
	sc := s.get()
	sc.request.read(r.GetEntries(), r.GetChecks(), r.Cost)
	return s.verdict(ctx, headgate.OpPeek, sc)
}

// Refund implements the service.
func (s *Service) Refund(ctx context.Context, r *headgatev1.RefundRequest) (*headgatev1.Verdict, error) {
	sc := s.get()
	sc.request.read(r.GetEntries(), r.GetChecks(), r.Cost)
	sc.request.at = r.GetAt()
	return s.verdict(ctx, headgate.OpRefund, sc)
}

// verdict decides on the request in the scratch, puts the answer together, and
// gives the scratch back.
func (s *Service) verdict(ctx context.Context, op headgate.Op, sc *scratch) (v *headgatev1.Verdict, err error) {
	if err = s.decide(ctx, op, sc); err == nil {
		v = s.newVerdict(op, sc)
	}
	s.put(sc)
	return v, err
}

// Reset implements the service.
func (s *Service) Reset(ctx context.Context, r *headgatev1.ResetRequest) (*headgatev1.ResetResponse, error) {
	sc := s.get()
	sc.request.read(r.GetEntries(), r.GetChecks(), nil)
	if err := s.decide(ctx, headgate.OpReset, sc); err != nil {
		s.put(sc)
		return nil, err
	}
	answer := &headgatev1.ResetResponse{Rules: make([]string, len(sc.ask.Checks))}
	for i := range sc.ask.Checks {
		answer.Rules[i] = sc.ask.Checks[i].Rule.Name()
	}
	s.put(sc)
	return answer, nil
}
