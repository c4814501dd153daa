package rabbitmq

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate/internal/consume"
)

// Headers of messages. Letters are messages in retry tiers and dead-letter queues, and messages
// that come back from a tier. Their headers are text, except that the number of attempts is a
// number. Times are RFC 3339 in UTC.
const (
	// HeaderSent is when the message was first published, in milliseconds since 1970. A Publisher
	// sets it. The broker's plugin rabbitmq_message_timestamp uses the same header.
	HeaderSent = "timestamp_in_ms"
	// HeaderQueue is the queue from which the message was consumed. HeaderExchange and HeaderKey
	// say what it was first published to.
	HeaderQueue    = "headgate-queue"
	HeaderExchange = "headgate-exchange"
	HeaderKey      = "headgate-routing-key"
	// HeaderReason is the error of the last attempt, at most 1,000 bytes of it.
	HeaderReason = consume.HeaderReason
	// HeaderAttempts is how often the message was tried, in all tiers together.
	HeaderAttempts = consume.HeaderAttempts
	// HeaderFailed is when the last attempt failed.
	HeaderFailed = consume.HeaderFailed
	// HeaderDue is when the message may be tried again. Only messages in tiers, or back from a
	// tier, have it.
	HeaderDue = consume.HeaderDue
	// HeaderTier is the number of the tier in which the message is, or was last, counted from 1.
	HeaderTier = "headgate-tier"
)

// Origin says where a letter was first, and what has happened since.
type Origin struct {
	// Queue is the queue from which the message was consumed. Exchange and Key say what it was
	// published to.
	Queue, Exchange, Key string
	// Reason is the last error. If the broker has moved the message, it is what the broker says:
	// "delivery_limit", "expired", "maxlen" or "rejected".
	Reason string
	// Attempts is how often the message was tried, as far as is known. Failed is when the last
	// attempt failed.
	Attempts int
	Failed   time.Time
	// Due and Tier are zero unless the message is in a tier or comes from one. Tiers are counted
	// from 1.
	Due  time.Time
	Tier int
}

// OriginOf reads our headers of a message, or those of the broker. It returns false if they are
// missing or invalid. Anybody who may publish to the queue may have written them.
func OriginOf(headers amqp.Table) (Origin, bool) {
	o := Origin{
		Queue: text(headers[HeaderQueue]), Exchange: text(headers[HeaderExchange]), Key: text(headers[HeaderKey]),
		Reason: text(headers[HeaderReason]),
	}
	var ok bool
	if o.Attempts, ok = number(headers[HeaderAttempts]); !ok {
		return fromBroker(headers)
	}
	if o.Tier, ok = number(headers[HeaderTier]); !ok {
		return Origin{}, false
	}
	var err error
	if o.Failed, err = time.Parse(time.RFC3339Nano, text(headers[HeaderFailed])); err != nil {
		return Origin{}, false
	}
	if due, ok := headers[HeaderDue]; ok {
		if o.Due, err = time.Parse(time.RFC3339Nano, text(due)); err != nil {
			return Origin{}, false
		}
	}
	// If the broker has moved the message since, its own headers are newer.
	if last, ok := fromBroker(headers); ok && last.Reason != "expired" {
		o.Queue, o.Reason, o.Failed = last.Queue, last.Reason, last.Failed
	}
	return o, o.Queue != ""
}

// fromBroker reads the headers that the broker writes when it moves a message by itself.
func fromBroker(headers amqp.Table) (Origin, bool) {
	deaths, _ := headers["x-death"].([]any)
	if len(deaths) == 0 {
		return Origin{}, false
	}
	last, _ := deaths[0].(amqp.Table) // the latest one comes first
	o := Origin{Queue: text(last["queue"]), Exchange: text(last["exchange"]), Reason: text(last["reason"])}
	if keys, _ := last["routing-keys"].([]any); len(keys) > 0 {
		o.Key = text(keys[0])
	}
	if at, ok := last["time"].(time.Time); ok {
		o.Failed = at
	}
	if n, ok := number(headers["x-delivery-count"]); ok && o.Reason == "delivery_limit" {
		o.Attempts = n
	}
	return o, o.Queue != ""
}

func text(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

// number returns a count. It returns false if the value is no integer or negative.
func number(value any) (int, bool) {
	var n int64
	switch v := value.(type) {
	case int64:
		n = v
	case int32:
		n = int64(v)
	case int16:
		n = int64(v)
	case int:
		n = int64(v)
	default:
		return 0, false
	}
	const most = 1 << 30
	return int(n), n >= 0 && n < most
}

// Sent returns when a message was first published: by its header in milliseconds, or by its
// timestamp in seconds. It returns false if the message has neither.
func Sent(d *amqp.Delivery) (time.Time, bool) {
	if ms, ok := d.Headers[HeaderSent].(int64); ok && ms > 0 {
		return time.UnixMilli(ms), true
	}
	return d.Timestamp, !d.Timestamp.IsZero()
}

// publish returns a function that publishes a letter for a message.
func (c *Consumer) publish(it *item, l consume.Letter) func(ctx context.Context) error {
	letter := c.letter(it, l)
	return func(ctx context.Context) error {
		err := c.letters.Publish(ctx, letter)
		if _, ok := errors.AsType[*ReturnedError](err); ok {
			// The queue was deleted. A new session declares it again, or reports that it is missing.
			it.of.lost(err)
		}
		return err
	}
}

func (c *Consumer) letter(it *item, l consume.Letter) Message {
	d := it.Message
	headers := amqp.Table{}
	for key, value := range d.Headers {
		if !strings.HasPrefix(key, consume.HeaderPrefix) && !ofBroker[key] {
			headers[key] = value
		}
	}
	headers[HeaderQueue] = c.config.Queue.Name
	headers[HeaderExchange], headers[HeaderKey] = d.Exchange, d.RoutingKey
	headers[HeaderReason] = l.Reason
	headers[HeaderAttempts] = int64(it.attempts + l.Attempts)
	headers[HeaderFailed] = l.Failed.UTC().Format(time.RFC3339Nano)
	headers[HeaderTier] = int64(max(l.Tier, it.Tier))
	if !l.Due.IsZero() {
		headers[HeaderDue] = l.Due.UTC().Format(time.RFC3339Nano)
	}
	return Message{Key: l.To, Publishing: amqp.Publishing{
		Headers: headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
		DeliveryMode: amqp.Persistent, Priority: d.Priority, CorrelationId: d.CorrelationId,
		ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId,
		Body: d.Body,
		// Expiration is left out, because it would make the message leave a tier early. UserId is
		// left out, because it must be that of the publishing user.
	}}
}

// ofBroker has the headers that the broker writes, and those that would make it send copies of a
// letter to other queues.
var ofBroker = map[string]bool{
	"CC": true, "BCC": true, "x-death": true, "x-delivery-count": true,
	"x-first-death-exchange": true, "x-first-death-queue": true, "x-first-death-reason": true,
	"x-last-death-exchange": true, "x-last-death-queue": true, "x-last-death-reason": true,
}

// copied returns a copy of a table that may be changed.
func copied(t amqp.Table) amqp.Table {
	c := make(amqp.Table, len(t)+1)
	maps.Copy(c, t)
	return c
}
