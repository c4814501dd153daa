package consume

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

// PanicError is what a panic of a handler becomes.
type PanicError struct {
	// Value is what the panic was called with; nil if the handler called runtime.Goexit.
	Value any
	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

// Error names the value without the stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "the handler ended its goroutine"
	}
	return fmt.Sprintf("the handler panicked: %v", e.Value)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// call calls a handler with the context of a permit, which ends after the timeout if that is
// not 0, and hands its error to settle, even if the handler panics or ends its goroutine: what
// was counted as running must not stay so.
func call(ctx context.Context, permit flow.Permit, timeout time.Duration, handle func(ctx context.Context) error, settle func(err error)) {
	var err error
	returned := false
	defer func() {
		if !returned {
			err = &PanicError{Value: recover(), Stack: debug.Stack()}
		}
		settle(err)
	}()
	ctx = permit.Context(ctx)
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err = handle(ctx)
	returned = true
}

// Permanent marks an error that trying again cannot mend. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// hopeless reports whether there is no use in trying again: the error is permanent, or the
// handler panicked.
func hopeless(err error) bool {
	if _, ok := errors.AsType[*permanentError](err); ok {
		return true
	}
	_, ok := errors.AsType[*PanicError](err)
	return ok
}

// Later marks an error after which the next try comes no sooner than after d. Later(nil, d)
// is nil.
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

// comeAgain is how long the error says to wait, or 0: that of [Later], of a
// [*flow.Rejection] or of a [*headgate.DeniedError].
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

// Backoff is the wait before the try that follows so many failed ones, 1 or more. It
// doubles from first up to longest, and is shortened by up to a half at random.
func Backoff(tries int, first, longest time.Duration) time.Duration {
	d := longest
	if tries < 32 {
		if grown := first << (tries - 1); grown>>(tries-1) == first {
			d = min(d, grown)
		}
	}
	return d - rand.N(d/2+1)
}

// stagger is a duration with up to an eighth added at random: whoever was told the same
// time does not come back at the same time, and nobody too early.
func stagger(d time.Duration) time.Duration { return d + rand.N(d/8+1) }
