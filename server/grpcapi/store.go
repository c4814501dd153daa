package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api/content"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store"
)

// StoreOptions are the settings of a [Store].
type StoreOptions struct {
	Options
	// Token is what callers must send, as "authorization: Bearer TOKEN". If it is empty, anybody may
	// call.
	Token string
}

// Store keeps counters for callers who bring their own rules. The policy in force does not apply to
// them, except that its counters are kept under the same names. It is safe for concurrent use; make
// one with [NewStore].
type Store struct {
	headgatev1.UnimplementedStoreServer

	streams
	decider decide.Decider
	token   token
	rules   ruleCache
	pool    pool[*take]
}

var _ headgatev1.StoreServer = (*Store)(nil)

// NewStore returns a store that asks decider.
func NewStore(decider decide.Decider, options StoreOptions) *Store {
	return &Store{
		streams: newStreams(options.Options), decider: decider, token: newToken(options.Token),
		pool: newPool(func() *take { return new(take) }),
	}
}

// Register adds the store to a server.
func (s *Store) Register(r grpc.ServiceRegistrar) { headgatev1.RegisterStoreServer(r, s) }

// admit returns an error unless the call has the token, or none is required.
func (s *Store) admit(ctx context.Context) error {
	if !s.token.set || s.token.shown(ctx) {
		return nil
	}
	return newStatus(codes.Unauthenticated, ReasonToken, "the store's token is missing or another one; send it as authorization: Bearer TOKEN")
}

// take is the memory for one request, which later requests reuse.
type take struct {
	op        headgate.Op
	faults    decide.Faults
	unread    int // the number of checks beyond headgate.MaxChecks
	ask       decide.Ask
	decisions []headgate.Decision
}

// Reset clears the take, and keeps its memory.
func (t *take) Reset() {
	clear(t.faults)
	clear(t.ask.Checks)
	clear(t.decisions)
	*t = take{faults: t.faults[:0], decisions: t.decisions[:0], ask: decide.Ask{Checks: t.ask.Checks[:0]}}
}

// do carries out the take. The error is a gRPC status.
func (s *Store) do(ctx context.Context, t *take) error {
	if err := t.check(); err != nil {
		return err
	}
	t.ask.Op, t.ask.Policy = t.op, s.decider.Policy()
	var err error
	if t.decisions, err = s.decider.Take(ctx, &t.ask, t.decisions); err != nil {
		return failed(ctx, err)
	}
	return nil
}

// check returns the faults of the request as a gRPC status, or nil.
func (t *take) check() error {
	if n := len(t.ask.Checks) + t.unread; n == 0 || t.unread > 0 {
		t.faults.Add(decide.OutOfRange, decide.Place{Name: "checks"}, "has %d checks, must have 1 to %d", n, headgate.MaxChecks)
	}
	if t.op > headgate.OpCharge {
		t.faults.Add(decide.OutOfRange, decide.Place{Name: "op"}, "is %d, which is no operation", t.op)
	}
	if len(t.faults) > 0 {
		return faultsStatus(t.faults)
	}
	// Checked here, mistakes are reported with the name of the field.
	if err := store.Validate(t.op, t.ask.Checks); err != nil {
		t.faults.AddError(decide.Place{Name: "checks"}, false, err)
		return faultsStatus(t.faults)
	}
	return nil
}

// called serves a call: it calls do with the memory for it, unless the call lacks the token.
func called[A any](ctx context.Context, s *Store, do func(t *take) (A, error)) (answer A, err error) {
	if err := s.admit(ctx); err != nil {
		return answer, err
	}
	return with(s.pool, do)
}

// decided carries out the take, and returns the answer.
func (s *Store) decided(ctx context.Context, t *take) (*headgatev1.TakeResponse, error) {
	if err := s.do(ctx, t); err != nil {
		return nil, err
	}
	return &headgatev1.TakeResponse{Decisions: newDecisions(t.decisions)}, nil
}

// Take implements the service.
func (s *Store) Take(ctx context.Context, r *headgatev1.TakeRequest) (*headgatev1.TakeResponse, error) {
	return called(ctx, s, func(t *take) (*headgatev1.TakeResponse, error) {
		t.op = opOf(int64(r.GetOp()))
		s.read(t, r.GetChecks())
		return s.decided(ctx, t)
	})
}

// opOf returns the operation of that number. Unknown numbers become an operation that check
// refuses.
func opOf(n int64) headgate.Op {
	if n < 0 || n > int64(headgate.OpCharge) {
		return headgate.OpCharge + 1
	}
	return headgate.Op(n)
}

// maxReservationID is the maximum length of a reservation's id, in bytes. Stores add only a little
// to an id of at most headgate.MaxID bytes.
const maxReservationID = 16 << 10

func checkID(p decide.Place, id []byte, list *decide.Faults) {
	switch {
	case len(id) == 0:
		list.Add(decide.OutOfRange, p, "is missing; a request that was denied has no reservation")
	case len(id) > maxReservationID:
		list.Add(decide.OutOfRange, p, "has %d bytes, which no id of a reservation has", len(id))
	}
}

// TakeOnce implements the service.
func (s *Store) TakeOnce(ctx context.Context, r *headgatev1.TakeOnceRequest) (*headgatev1.TakeResponse, error) {
	return called(ctx, s, func(t *take) (*headgatev1.TakeResponse, error) {
		t.ask.Terms = t.readTerms(r.GetTerms())
		if t.ask.Terms.ID == "" {
			t.faults.Add(decide.OutOfRange, decide.Place{List: "terms", Name: "id"}, "is missing")
		}
		s.read(t, r.GetChecks())
		return s.decided(ctx, t)
	})
}

// TakeReserve implements the service.
func (s *Store) TakeReserve(ctx context.Context, r *headgatev1.TakeReserveRequest) (*headgatev1.TakeReserveResponse, error) {
	return called(ctx, s, func(t *take) (*headgatev1.TakeReserveResponse, error) {
		t.ask.Terms, t.ask.Reserve = t.readTerms(r.GetTerms()), true
		s.read(t, r.GetChecks())
		if err := s.do(ctx, t); err != nil {
			return nil, err
		}
		reservation, err := content.Reservation(&t.ask.Reservation)
		if err != nil {
			return nil, failed(ctx, err)
		}
		return &headgatev1.TakeReserveResponse{Reservation: reservation, Decisions: newDecisions(t.decisions)}, nil
	})
}

// Recall implements the service.
func (s *Store) Recall(ctx context.Context, r *headgatev1.RecallRequest) (*headgatev1.StoreReservation, error) {
	return called(ctx, s, func(t *take) (*headgatev1.StoreReservation, error) {
		if checkID(decide.Place{Name: "id"}, r.GetId(), &t.faults); len(t.faults) > 0 {
			return nil, faultsStatus(t.faults)
		}
		made, err := s.decider.Recall(ctx, string(r.GetId()))
		if err != nil {
			return nil, failed(ctx, err)
		}
		answer, err := content.Reservation(&made)
		if err != nil {
			return nil, failed(ctx, err)
		}
		return answer, nil
	})
}

// TakeSettle implements the service.
func (s *Store) TakeSettle(ctx context.Context, r *headgatev1.TakeSettleRequest) (*headgatev1.TakeResponse, error) {
	return called(ctx, s, func(t *take) (*headgatev1.TakeResponse, error) {
		s.read(t, r.GetReservation().GetChecks())
		checkID(decide.Place{List: "reservation", Name: "id"}, r.GetReservation().GetId(), &t.faults)
		if err := t.check(); err != nil {
			return nil, err
		}
		made := headgate.Reservation{ID: string(r.GetReservation().GetId()), Expires: headgate.Instant(r.GetReservation().GetExpires()), Checks: t.ask.Checks}
		if err := store.ValidateSettle(&made, r.GetUnits()); err != nil {
			t.faults.AddError(decide.Place{Name: "units"}, false, err)
			return nil, faultsStatus(t.faults)
		}
		var err error
		if t.decisions, err = s.decider.Settle(ctx, made, r.GetUnits(), t.decisions); err != nil {
			return nil, failed(ctx, err)
		}
		return &headgatev1.TakeResponse{Decisions: newDecisions(t.decisions)}, nil
	})
}
