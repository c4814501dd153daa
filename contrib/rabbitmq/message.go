package rabbitmq

import (
	"crypto/rand"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/consume"
)

// Message is a message to publish.
type Message struct {
	// Exchange and Key say where to publish the message. With the exchange "", it goes to the queue
	// whose name is Key.
	Exchange, Key string
	// Optional allows that no queue gets the message. Otherwise that is a [*ReturnedError].
	Optional bool
	// Publishing is the message itself. The Publisher sets zero fields: DeliveryMode to persistent,
	// MessageId to a random value, and Timestamp to now. It also sets the header [HeaderSent],
	// because Timestamp is in whole seconds. A MessageId must be unique.
	amqp.Publishing
}

// validate returns an error for a message that would break the connection for all messages.
func (m *Message) validate() error {
	var p headgate.Problems
	for _, short := range []struct{ field, what, text string }{
		{"exchange", "name of the exchange", m.Exchange},
		{"key", "routing key", m.Key},
		{"content_type", "content type", m.ContentType},
		{"content_encoding", "content encoding", m.ContentEncoding},
		{"correlation_id", "correlation id", m.CorrelationId},
		{"reply_to", "address for replies", m.ReplyTo},
		{"expiration", "expiration", m.Expiration},
		{"message_id", "message id", m.MessageId},
		{"type", "type", m.Type},
		{"user_id", "user id", m.UserId},
		{"app_id", "application id", m.AppId},
	} {
		if len(short.text) > longest {
			p.Add(short.field, "the %s is %d bytes long, must be %d at most", short.what, len(short.text), longest)
		}
	}
	if err := m.Headers.Validate(); err != nil {
		p.Add("headers", "the headers cannot be sent: %v", err)
	}
	return p.Err("rabbitmq: message")
}

// complete sets the defaults. It changes no table of the caller.
func (m *Message) complete() {
	consume.Or(&m.DeliveryMode, amqp.Persistent)
	if m.MessageId == "" {
		m.MessageId = rand.Text()
	}
	now := time.Now()
	if m.Timestamp.IsZero() {
		m.Timestamp = now
		if _, ok := m.Headers[HeaderSent]; !ok {
			m.Headers = copied(m.Headers)
			m.Headers[HeaderSent] = now.UnixMilli()
		}
	}
}
