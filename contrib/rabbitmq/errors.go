package rabbitmq

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate/internal/consume"
)

// ErrAbandoned is wrapped by the error that Run returns if messages were still being handled after
// the time to drain, although their contexts had ended. The broker delivers them again.
var ErrAbandoned = errors.New("rabbitmq: handlers did not end in time")

// ErrLost is the cause of a handler's context when the connection broke. The broker delivers the
// message again, whatever the handler returns.
var ErrLost = errors.New("rabbitmq: the connection was lost, the message comes again")

// ErrSettled is the error of a delivery's own Ack, Nack and Reject in a handler, because the
// Consumer settles the delivery.
var ErrSettled = errors.New("rabbitmq: the consumer settles deliveries, by what the handler returns")

// These errors are wrapped by those of Publish, unless it returns one of the error types.
var (
	// ErrRefused means that the broker has not taken the message: a queue that refuses messages
	// when it is full is full, or the broker could not store the message.
	ErrRefused = errors.New("rabbitmq: the broker refused the message")
	// ErrUnsent means that the message was not sent.
	ErrUnsent = errors.New("rabbitmq: the message was not sent")
	// ErrUnconfirmed means that the message was sent, but may or may not have arrived.
	ErrUnconfirmed = errors.New("rabbitmq: the message was sent and not confirmed")
	// ErrClosed means that the Publisher is closed.
	ErrClosed = errors.New("rabbitmq: the publisher is closed")
)

// ReturnedError means that no queue gets the message.
type ReturnedError struct {
	// Exchange and Key are where the message was published to.
	Exchange, Key string
	// Code and Reason come from the broker, such as 312 and "NO_ROUTE".
	Code   int
	Reason string
}

// Error names the exchange and the key.
func (e *ReturnedError) Error() string {
	return fmt.Sprintf("rabbitmq: no queue gets what is published to the exchange %q with the key %q: %s", e.Exchange, e.Key, e.Reason)
}

// PublishError means that the broker closes the channel because of the message: the exchange does
// not exist, the user may not write to it, or the message is larger than the broker allows.
type PublishError struct {
	// Cause is the broker's answer.
	Cause *amqp.Error
}

// Error contains the broker's answer.
func (e *PublishError) Error() string {
	return "rabbitmq: the broker cannot take the message: " + e.Cause.Reason
}

// Unwrap returns the Cause.
func (e *PublishError) Unwrap() error { return e.Cause }

// PanicError is the error for a panic of Handle. The message is not tried again.
type PanicError = consume.PanicError

// Permanent marks an error for which trying again is of no use: the message is exhausted at once.
// Permanent(nil) is nil.
func Permanent(err error) error { return consume.Permanent(err) }

// Later marks an error after which the next try in place must wait for at least d, such as the time
// of a Retry-After header. Later(nil, d) is nil. A [*flow.Rejection] or a [*headgate.DeniedError]
// in an error that Handle returns has the same effect.
func Later(err error, d time.Duration) error { return consume.Later(err, d) }
