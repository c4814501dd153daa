package decide

import (
	"context"

	"github.com/headgate/headgate"
)

// Settlement is the final cost of a reservation.
type Settlement struct {
	// Reservation is the id of the reservation.
	Reservation string
	// Cost is the real cost, if it was given: 0 gives everything back.
	Cost int64
	// Status is the HTTP status that the work has ended with, if it was given.
	Status int64
	// Given says which of the fields the caller has sent.
	Given Given
}

// maxReservation is the maximum length of a reservation's id. Ledgers may add to the id that the
// caller gave.
const maxReservation = 2 * headgate.MaxID

// Settle settles a reservation at its real cost. The outcome's verdict has the state of each limit.
func (r *Request) Settle(ctx context.Context, d Decider, s Settlement) *Outcome {
	o := &r.outcome
	o.begin(&r.Policy)
	if len(r.Faults) == 0 || r.Faults.Kind() != Malformed {
		s.check(&r.Faults)
	}
	if len(r.Faults) > 0 {
		o.Kind = Faulty
		return o
	}
	reserved, err := d.Recall(ctx, s.Reservation)
	if err != nil {
		o.fail(ctx, err)
		return o
	}
	if s.Given&GivenCost == 0 {
		s.Cost = -1 // as estimated
	}
	r.Policy = d.Policy()
	units := r.Policy.Settle(&reserved, s.Cost, int(s.Status))
	if r.decisions, err = d.Settle(ctx, reserved, units, r.decisions[:0]); err != nil {
		o.fail(ctx, err)
		return o
	}
	o.decide(r.decisions)
	return o
}

func (s *Settlement) check(f *Faults) {
	switch n := len(s.Reservation); {
	case n == 0:
		f.Add(OutOfRange, Place{Name: "reservation"}, "is missing; send the id that the answer to the reservation gave")
	case n > maxReservation:
		f.Add(OutOfRange, Place{Name: "reservation"}, "has %d bytes, which no id of a reservation has", n)
	}
	if s.Given&GivenCost != 0 {
		f.number(Place{Name: "cost"}, s.Cost, 0, headgate.MaxCount, "")
	} else if s.Given&GivenStatus == 0 {
		f.Add(OutOfRange, Place{Name: "cost"}, "is missing; send the real cost, or the status that the request ended with, or both")
	}
	if s.Given&GivenStatus != 0 {
		f.number(Place{Name: "status"}, s.Status, 100, 599, "")
	}
}
