package flow

import (
	"context"
	"errors"
)

// Shadow returns a gate that asks another gate and admits everything. It never waits: if the other
// gate would have made a request wait, that counts as refused. What the other gate admits holds its
// permit as usual; what it refuses gets a permit that holds nothing. Put hooks around the other
// gate with [Observe] to see what it would do.
//
// Errors of the other gate that are not a [*Rejection] are returned, as is the error for an invalid
// request.
//
// If a gate learns from what it refuses, a shadow underestimates its effect: the requests that it
// would have refused are in progress all the same, and slow down the others.
func Shadow(gate Gate) Gate { return shadow{gate} }

type shadow struct{ gate Gate }

func (s shadow) Acquire(ctx context.Context, r Request) (Permit, error) {
	return s.TryAcquire(ctx, r)
}

func (s shadow) TryAcquire(ctx context.Context, r Request) (Permit, error) {
	p, err := s.gate.TryAcquire(ctx, r)
	if _, refused := errors.AsType[*Rejection](err); refused {
		return Permit{}, nil
	}
	return p, err
}
