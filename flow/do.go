package flow

import (
	"context"
	"errors"

	"github.com/headgate/headgate"
)

// Do asks the gate, does the work if it may begin, and gives the permit back, whatever happens. The
// gate is told the outcome by [OutcomeOf], and [Ignore] if the work panics.
//
// The work must use the context that it is given; see [Permit.Context]. The error is that of the
// gate, or else that of the work. To tell them apart, or to decide on the outcome, use
// [Gate.Acquire].
func Do(ctx context.Context, gate Gate, r Request, work func(ctx context.Context) error) error {
	_, err := Get(ctx, gate, r, func(ctx context.Context) (struct{}, error) { return struct{}{}, work(ctx) })
	return err
}

// Get is [Do] for work that has a result. If the gate refuses, the result is the zero T.
func Get[T any](ctx context.Context, gate Gate, r Request, work func(ctx context.Context) (T, error)) (T, error) {
	permit, err := gate.Acquire(ctx, r)
	if err != nil {
		var none T
		return none, err
	}
	defer permit.Done(Ignore) // if the work panics
	result, err := work(permit.Context(ctx))
	permit.Done(OutcomeOf(err))
	return result, err
}

// OutcomeOf returns what the error of work says about load: [Success] if it is nil, and [Overload]
// for deadlines that have passed, timeouts of connections, stores that are unavailable, and work that
// another gate has shed, [Canceled] for [context.Canceled], and [Ignore] for all other errors.
func OutcomeOf(err error) Outcome {
	type timeout interface { // as net.Error
		error
		Timeout() bool
	}
	if err == nil {
		return Success
	}
	late, ok := errors.AsType[timeout](err)
	switch {
	case ok && late.Timeout(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, headgate.ErrUnavailable), errors.Is(err, ErrShed):
		return Overload
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Ignore
}
