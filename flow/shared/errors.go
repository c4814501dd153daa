package shared

import (
	"errors"
	"fmt"
)

var (
	// ErrLost matches every [*LostError].
	ErrLost = errors.New("flow: permit lost")
	// ErrEnded is the cause of a [*LostError] for a lease that could not be renewed in
	// time.
	ErrEnded = errors.New("flow: the lease was not renewed in time")
	// ErrClosed means that the gate was closed.
	ErrClosed = errors.New("flow: the gate is closed")
	// ErrNoLease means that the context is not that of a permit with a lease.
	ErrNoLease = errors.New("flow: the context has no lease")
)

// LostError says that a lease was lost while its permit was held, so others may soon have the
// permit. It is the cause of the permit's context.
type LostError struct {
	// Gate, Key, Holder and Epoch identify the lease.
	Gate, Key, Holder string
	Epoch             int64
	// Cause is store.ErrNotHeld if the store does not know the lease any more, store.ErrRevoked if
	// somebody has revoked it, ErrEnded if it could not be renewed in time, and ErrClosed if the
	// gate was closed while the permit was held.
	Cause error
}

// Error names the gate and the cause, but not the key, which may be private.
func (e *LostError) Error() string {
	return fmt.Sprintf("flow: gate %q: permit lost: %v", e.Gate, e.Cause)
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the Cause.
func (e *LostError) Unwrap() error { return e.Cause }
