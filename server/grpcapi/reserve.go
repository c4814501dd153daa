package grpcapi

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// Reserve implements the service.
func (s *Service) Reserve(ctx context.Context, r *headgatev1.ReserveRequest) (*headgatev1.Reservation, error) {
	sc := s.get()
	sc.request.read(r.GetEntries(), r.GetChecks(), r.Cost)
	sc.request.id, sc.request.termMS = r.GetId(), r.GetTermMs()
	answer, err := s.reserve(ctx, sc)
	s.put(sc)
	return answer, err
}

func (s *Service) reserve(ctx context.Context, sc *scratch) (*headgatev1.Reservation, error) {
	if err := s.resolve(headgate.OpTake, sc); err != nil {
		return nil, err
	}
	made, decisions, err := s.decider.Reserve(ctx, sc.request.terms(), &sc.ask, sc.decisions)
	if err != nil {
		return nil, failed(ctx, err)
	}
	sc.decisions = decisions
	answer := &headgatev1.Reservation{Id: made.ID, Verdict: s.newVerdict(headgate.OpTake, sc)}
	if made.ID == "" {
		return answer, nil
	}
	// Rounded down: a caller that settles by then is not too late.
	const microsInMilli = 1000
	answer.ExpiresAfterMs = max(0, made.Expires-answer.GetVerdict().GetAt()) / microsInMilli
	for i := range made.Checks {
		c := &made.Checks[i]
		answer.Checks = append(answer.Checks, &headgatev1.ReservedCheck{Rule: c.Rule.Name(), Cost: c.Units()})
	}
	return answer, nil
}

// Settle implements the service.
func (s *Service) Settle(ctx context.Context, r *headgatev1.SettleRequest) (*headgatev1.Verdict, error) {
	var list faults
	checkID(r.GetId(), &list)
	switch {
	case r.Cost == nil && len(r.GetCosts()) == 0:
		list.add("cost", "is missing; send cost or costs, or call Cancel")
	case r.Cost != nil && len(r.GetCosts()) > 0:
		list.add("costs", "cannot be with cost; send one of them")
	case r.Cost != nil && !settles(r.GetCost()):
		list.add("cost", "is %d, must be 0 to %d", r.GetCost(), int64(headgate.MaxCount))
	}
	for i, cost := range r.GetCosts() {
		if !settles(cost) {
			list.add(fmt.Sprintf("costs[%d]", i), "is %d, must be 0 to %d", cost, int64(headgate.MaxCount))
		}
	}
	if list != nil {
		return nil, list.status()
	}
	return s.settle(ctx, r.GetId(), func(made *headgate.Reservation) ([]int64, error) {
		if r.Cost != nil {
			return made.Units(r.GetCost()), nil
		}
		if n := len(r.GetCosts()); n != len(made.Checks) {
			return nil, faults{{codes.InvalidArgument, "costs", fmt.Sprintf("has %d costs, must have one for each of the %d checks of the reservation", n, len(made.Checks))}}.status()
		}
		return r.GetCosts(), nil
	})
}

// settles reports whether a request may have had the cost after all.
func settles(cost int64) bool { return cost >= 0 && cost <= headgate.MaxCount }

func checkID(id string, list *faults) {
	switch {
	case id == "":
		list.add("id", "is missing; a request that was denied, or that no rule binds, has no reservation")
	case len(id) > maxReservationID:
		list.add("id", "has %d bytes, which no reservation's has", len(id))
	}
}

// maxReservationID bounds what is looked for: stores add little to an id of
// headgate.MaxID.
const maxReservationID = 16 << 10

// Cancel implements the service.
func (s *Service) Cancel(ctx context.Context, r *headgatev1.CancelRequest) (*headgatev1.Verdict, error) {
	var list faults
	if checkID(r.GetId(), &list); list != nil {
		return nil, list.status()
	}
	return s.settle(ctx, r.GetId(), func(made *headgate.Reservation) ([]int64, error) {
		return make([]int64, len(made.Checks)), nil
	})
}

func (s *Service) settle(ctx context.Context, id string, units func(*headgate.Reservation) ([]int64, error)) (*headgatev1.Verdict, error) {
	made, err := s.decider.Recall(ctx, id)
	if err != nil {
		return nil, failed(ctx, err)
	}
	costs, err := units(&made)
	if err != nil {
		return nil, err
	}
	sc := s.get()
	sc.ask.Policy = s.decider.Policy()
	sc.decisions, err = s.decider.Settle(ctx, made, costs, sc.decisions)
	var answer *headgatev1.Verdict
	if err == nil {
		answer = s.newVerdict(headgate.OpRefund, sc)
	} else {
		err = failed(ctx, err)
	}
	s.put(sc)
	return answer, err
}
