package rabbitmq

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/attempt"
)

// ErrAbandoned is what Run returns, wrapped, when messages were still being handled after
// their time to drain and their contexts had ended. The broker delivers them again.
var ErrAbandoned = errors.New("rabbitmq: handlers did not end in time")

// ErrLost is the cause of the end of a handler's context when the connection broke: the
// broker delivers the message again, whatever the handler returns.
var ErrLost = errors.New("rabbitmq: the connection was lost, the message comes again")

// ErrSettled is what a delivery's own Ack, Nack and Reject return to a handler: the Consumer
// settles it.
var ErrSettled = errors.New("rabbitmq: the consumer settles deliveries, by what the handler returns")

// What Publish returns, wrapped, if it is not one of the types of error.
var (
	// ErrRefused means that the broker has not taken the message: a queue that refuses
	// when it is full is full, or the broker could not keep it.
	ErrRefused = errors.New("rabbitmq: the broker refused the message")
	// ErrUnsent means that the message was not sent.
	ErrUnsent = errors.New("rabbitmq: the message was not sent")
	// ErrUnconfirmed means that the message was sent, and may have arrived or not.
	ErrUnconfirmed = errors.New("rabbitmq: the message was sent and not confirmed")
	// ErrClosed means that the Publisher is closed.
	ErrClosed = errors.New("rabbitmq: the publisher is closed")
)

// ReturnedError means that no queue gets the message.
type ReturnedError struct {
	// Exchange and Key are where it was to go.
	Exchange, Key string
	// Code and Reason are the broker's, such as 312 and "NO_ROUTE".
	Code   int
	Reason string
}

// Error names the exchange and the key.
func (e *ReturnedError) Error() string {
	return fmt.Sprintf("rabbitmq: no queue gets what is published to the exchange %q with the key %q: %s", e.Exchange, e.Key, e.Reason)
}

// PublishError means that the broker closes the channel on the message: there is no such
// exchange, the user may not write to it, or the message is larger than the broker takes.
type PublishError struct {
	// Cause is the broker's answer.
	Cause *amqp.Error
}

// Error tells the broker's answer.
func (e *PublishError) Error() string {
	return "rabbitmq: the broker cannot take the message: " + e.Cause.Reason
}

// Unwrap returns the Cause.
func (e *PublishError) Unwrap() error { return e.Cause }

// PanicError is what a panic of Handle becomes. The message is not tried again.
type PanicError = attempt.PanicError

// Permanent marks an error that trying again cannot mend: the message is exhausted at
// once. Permanent(nil) is nil.
func Permanent(err error) error { return attempt.Permanent(err) }

// Later marks an error after which the next try in place comes no sooner than after d, as
// a partner said in a Retry-After. Later(nil, d) is nil. A [*flow.Rejection] or a
// [*headgate.DeniedError] among the errors that Handle returns does the same.
func Later(err error, d time.Duration) error { return attempt.Later(err, d) }

// DefaultOutcome is Success without an error; Overload for deadlines that have passed,
// stores that are unavailable and work that another gate has shed; and Ignore for all
// other errors.
func DefaultOutcome(err error) flow.Outcome { return attempt.Outcome(err) }
