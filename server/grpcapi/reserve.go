package grpcapi

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// Reserve implements the service.
func (s *Service) Reserve(ctx context.Context, r *headgatev1.ReserveRequest) (*headgatev1.ReserveResponse, error) {
	sc := s.get()
	sc.request.read(r.GetEntries(), r.GetChecks(), r.Cost)
	sc.request.id, sc.request.lifetimeMS = r.GetId(), r.GetLifetimeMs()
	answer, err := s.reserve(ctx, sc)
	s.put(sc)
	return answer, err
}

func (s *Service) reserve(ctx context.Context, sc *scratch) (*headgatev1.ReserveResponse, error) {
	if err := s.resolve(headgate.OpTake, sc); err != nil {
		return nil, err
	}
	terms := sc.request.terms()
	if terms.For == 0 {
		terms.For = sc.ask.Policy.Term(sc.ask.Checks)
	}
	made, decisions, err := s.decider.Reserve(ctx, terms, &sc.ask, sc.decisions)
	if err != nil {
		return nil, failed(ctx, err)
	}
	sc.decisions = decisions
	answer := &headgatev1.ReserveResponse{Verdict: s.newVerdict(headgate.OpTake, sc)}
	if made.ID != "" {
		// Rounded down: who settles by then is not too late.
		left := time.Duration(made.Expires-answer.GetVerdict().GetAt()) * time.Microsecond
		answer.Reservation = &headgatev1.Reservation{Id: made.ID, ExpiresInMs: left.Milliseconds()}
	}
	return answer, nil
}

// Settle implements the service.
func (s *Service) Settle(ctx context.Context, r *headgatev1.SettleRequest) (*headgatev1.Verdict, error) {
	var list faults
	checkID("reservation", r.GetReservation(), &list)
	cost := int64(-1) // as estimated
	switch {
	case r.Cost != nil:
		if cost = r.GetCost(); cost < 0 || cost > headgate.MaxCount {
			list.add("cost", "is %d, must be 0 to %d", cost, int64(headgate.MaxCount))
		}
	case r.GetStatus() == 0:
		list.add("cost", "is missing; send the real cost, or the status that the request ended with, or both")
	}
	if n := r.GetStatus(); n != 0 && (n < 100 || n > 599) {
		list.add("status", "is %d, must be 100 to 599", n)
	}
	if list != nil {
		return nil, list.status()
	}
	return s.settle(ctx, r.GetReservation(), cost, int(r.GetStatus()))
}

// maxReservationID bounds what is looked for: stores add little to an id of
// headgate.MaxID.
const maxReservationID = 16 << 10

func checkID(field, id string, list *faults) {
	switch {
	case id == "":
		list.add(field, "is missing; a request that was denied, or that no rule binds, has no reservation")
	case len(id) > maxReservationID:
		list.add(field, "has %d bytes, which no id of a reservation has", len(id))
	}
}

// Cancel implements the service.
func (s *Service) Cancel(ctx context.Context, r *headgatev1.CancelRequest) (*headgatev1.Verdict, error) {
	var list faults
	if checkID("reservation", r.GetReservation(), &list); list != nil {
		return nil, list.status()
	}
	return s.settle(ctx, r.GetReservation(), 0, 0)
}

func (s *Service) settle(ctx context.Context, id string, cost int64, status int) (*headgatev1.Verdict, error) {
	made, err := s.decider.Recall(ctx, id)
	if err != nil {
		return nil, failed(ctx, err)
	}
	sc := s.get()
	sc.ask.Policy = s.decider.Policy()
	units := sc.ask.Policy.Settle(&made, cost, status)
	sc.decisions, err = s.decider.Settle(ctx, made, units, sc.decisions)
	var answer *headgatev1.Verdict
	if err == nil {
		answer = s.newVerdict(headgate.OpRefund, sc)
	} else {
		err = failed(ctx, err)
	}
	s.put(sc)
	return answer, err
}
