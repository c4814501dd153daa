package kafka

import (
	"errors"
	"time"

	"github.com/headgate/headgate/internal/attempt"
)

// ErrAbandoned is wrapped by the error that Run returns if records were still being handled after
// the time to drain, although their contexts had ended. These records are not committed.
var ErrAbandoned = errors.New("kafka: handlers did not end in time")

// PanicError is the error for a panic of Handle. The record is not tried again.
type PanicError = attempt.PanicError

// Permanent marks an error for which trying again is of no use: the record is exhausted at once.
// Permanent(nil) is nil.
func Permanent(err error) error { return attempt.Permanent(err) }

// Later marks an error after which the next try in place must wait for at least d, such as the time
// of a Retry-After header. Later(nil, d) is nil. A [*flow.Rejection] or a [*headgate.DeniedError]
// in an error that Handle returns has the same effect.
func Later(err error, d time.Duration) error { return attempt.Later(err, d) }
