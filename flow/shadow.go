package flow

import (
	"context"
	"errors"
)

// Shadow returns a gate that asks another one and lets everything in. It never waits:
// what the other gate would have made wait counts as refused. What the other gate
// lets in holds its permit as usual; what it refuses gets a permit that holds
// nothing. Put hooks around the other gate with [Observe] to see what it would do.
//
// Requests are refused as they are in any gate that cannot serve them: errors that
// are not a [*Rejection] are returned, as is a request that is invalid.
//
// A shadow shows less than it seems where a gate learns from what it refuses. What it
// would have refused is in progress all the same, and slows down the rest.
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
