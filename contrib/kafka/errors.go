package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

// ErrAbandoned is what Run returns, wrapped, when records were still being handled after
// their time to drain and their contexts had ended. They are not committed.
var ErrAbandoned = errors.New("kafka: handlers did not end in time")

// PanicError is what a panic of Handle becomes. The record is not tried again.
type PanicError struct {
	// Value is what the panic was called with; nil if Handle called runtime.Goexit.
	Value any
	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

// Error names the value without the stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "kafka: the handler ended its goroutine"
	}
	return fmt.Sprintf("kafka: the handler panicked: %v", e.Value)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Permanent marks an error that trying again cannot mend: the record is exhausted at
// once. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Later marks an error after which the next try in place comes no sooner than after d,
// as a partner said in a Retry-After. Later(nil, d) is nil. A [*flow.Rejection] or a
// [*headgate.DeniedError] among the errors that Handle returns does the same.
func Later(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &laterError{err, d}
}

type laterError struct {
	err   error
	after time.Duration
}

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

// hopeless reports whether there is no use in trying again.
func hopeless(err error) bool {
	if _, ok := errors.AsType[*permanentError](err); ok {
		return true
	}
	_, ok := errors.AsType[*PanicError](err)
	return ok
}

// comeAgain is how long the error says to wait, or 0.
func comeAgain(err error) time.Duration {
	var d time.Duration
	if e, ok := errors.AsType[*laterError](err); ok {
		d = e.after
	} else if e, ok := errors.AsType[*flow.Rejection](err); ok {
		d = e.RetryAfter
	} else if e, ok := errors.AsType[*headgate.DeniedError](err); ok {
		d = e.Decision.RetryAfter
	}
	if d == headgate.Never {
		return 0
	}
	return max(d, 0)
}

// DefaultOutcome is Success without an error; Overload for deadlines that have passed,
// stores that are unavailable and work that another gate has shed; and Ignore for all
// other errors.
func DefaultOutcome(err error) flow.Outcome {
	switch {
	case err == nil:
		return flow.Success
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, headgate.ErrUnavailable), errors.Is(err, flow.ErrShed):
		return flow.Overload
	}
	return flow.Ignore
}
