package kafka

import (
	"errors"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/attempt"
)

// ErrAbandoned is what Run returns, wrapped, when records were still being handled after
// their time to drain and their contexts had ended. They are not committed.
var ErrAbandoned = errors.New("kafka: handlers did not end in time")

// PanicError is what a panic of Handle becomes. The record is not tried again.
type PanicError = attempt.PanicError

// Permanent marks an error that trying again cannot mend: the record is exhausted at
// once. Permanent(nil) is nil.
func Permanent(err error) error { return attempt.Permanent(err) }

// Later marks an error after which the next try in place comes no sooner than after d,
// as a partner said in a Retry-After. Later(nil, d) is nil. A [*flow.Rejection] or a
// [*headgate.DeniedError] among the errors that Handle returns does the same.
func Later(err error, d time.Duration) error { return attempt.Later(err, d) }

// DefaultOutcome is Success without an error; Overload for deadlines that have passed,
// stores that are unavailable and work that another gate has shed; and Ignore for all
// other errors.
func DefaultOutcome(err error) flow.Outcome { return attempt.Outcome(err) }
