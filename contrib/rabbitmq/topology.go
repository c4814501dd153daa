package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/consume"
)

// Setup says what to do about exchanges and queues before they are used.
type Setup uint8

const (
	// Declare declares what is missing, and returns a [*MismatchError] for what exists with other
	// properties. It is the zero Setup.
	Declare Setup = iota
	// Check declares nothing: if something is missing, that is a [*MismatchError] too. Bindings
	// cannot be checked over AMQP.
	Check
	// Exists only checks that exchanges and queues exist. It is for users who may not configure
	// them at the broker.
	Exists
)

// Type is the type of a queue.
type Type uint8

const (
	// Quorum queues are replicated over the nodes of a cluster. They count deliveries, so a message
	// that crashes its consumers is dead-lettered in the end. It is the zero Type.
	Quorum Type = iota
	// Classic queues live on one node and count nothing.
	Classic
)

// Overflow says what happens when a queue is full.
type Overflow uint8

const (
	// RejectPublish refuses new messages. A [Publisher] then returns [ErrRefused], and other
	// publishers are told too. No confirmed message is lost. It is the zero Overflow.
	RejectPublish Overflow = iota
	// DropHead drops the oldest message, which goes to the dead-letter queue if there is one. It is
	// for messages that lose their worth with age.
	DropHead
)

// Queue is a permanent queue: it is durable, not exclusive, and never deleted by itself.
type Queue struct {
	// Name is 1 to 255 bytes long.
	Name string
	Type Type
	// MaxLength and MaxBytes are how many ready messages the queue may have, and their total size.
	// Zero means no bound.
	MaxLength, MaxBytes int64
	// Overflow says what happens when it is full.
	Overflow Overflow
	// TTL is how long a message may wait in the queue, in whole milliseconds. Then it goes to the
	// dead-letter queue, if there is one. Zero means for ever.
	TTL time.Duration
	// DeadLetter is the queue for messages that expire, exceed DeliveryLimit or
	// MaxLength, or are rejected. Empty means that they are dropped.
	DeadLetter string
	// DeliveryLimit is how often a quorum queue delivers a message before the message is
	// dead-lettered: 1 means once, and never again. Zero means 20. Classic queues have no limit.
	// The broker counts what is delivered again, so its x-delivery-limit is one less.
	DeliveryLimit int
	// SingleActive delivers messages to only one consumer at a time.
	SingleActive bool
	// Arguments are further arguments of the declaration.
	Arguments amqp.Table
}

// deliveryLimit is the broker's name of DeliveryLimit, which counts only what is delivered again.
const deliveryLimit = "x-delivery-limit"

// DefaultDeliveryLimit is used for quorum queues without a DeliveryLimit.
const DefaultDeliveryLimit = 20

// Exchange is a permanent exchange.
type Exchange struct {
	Name string
	// Kind is "direct", "topic", "fanout", "headers", or that of a plugin.
	Kind      string
	Arguments amqp.Table
}

// Binding makes an exchange send messages to a queue.
type Binding struct {
	Exchange, Key, Queue string
	Arguments            amqp.Table
}

// Topology is what must exist at the broker before messages flow.
type Topology struct {
	Setup     Setup
	Exchanges []Exchange
	Queues    []Queue
	Bindings  []Binding
}

// arguments returns the arguments of the queue's declaration.
func (q *Queue) arguments() amqp.Table {
	table := amqp.Table{}
	if q.Type == Quorum {
		table["x-queue-type"] = "quorum"
		limit := q.DeliveryLimit
		consume.Or(&limit, DefaultDeliveryLimit)
		table[deliveryLimit] = int64(limit - 1)
	} else {
		table["x-queue-type"] = "classic"
	}
	if q.MaxLength > 0 {
		table["x-max-length"] = q.MaxLength
	}
	if q.MaxBytes > 0 {
		table["x-max-length-bytes"] = q.MaxBytes
	}
	if q.TTL > 0 {
		table["x-message-ttl"] = q.TTL.Milliseconds()
	}
	if q.SingleActive {
		table["x-single-active-consumer"] = true
	}
	if q.DeadLetter != "" {
		table["x-dead-letter-exchange"] = "" // the default exchange, which knows every queue by its name
		table["x-dead-letter-routing-key"] = q.DeadLetter
	}
	bounded := q.MaxLength > 0 || q.MaxBytes > 0
	// With at-least-once dead-lettering, the broker keeps a message until its dead letter is
	// confirmed. That requires RejectPublish, because the memory could not be bounded otherwise.
	safe := q.Type == Quorum && q.DeadLetter != "" && q.Overflow == RejectPublish
	switch {
	case safe:
		table["x-overflow"], table["x-dead-letter-strategy"] = "reject-publish", "at-least-once"
	case bounded && q.Overflow == RejectPublish:
		table["x-overflow"] = "reject-publish"
	case bounded:
		table["x-overflow"] = "drop-head"
	}
	maps.Copy(table, q.Arguments)
	return table
}

func (q *Queue) validate(p *headgate.Problems, field string) {
	validateName(p, field+".name", "the queue", q.Name)
	if q.Type > Classic {
		p.Add(field+".type", "the type is %d, must be %d to %d", q.Type, Quorum, Classic)
	}
	if q.MaxLength < 0 {
		p.Add(field+".max_length", "the longest length is %d messages, must be 0 or more", q.MaxLength)
	}
	if q.MaxBytes < 0 {
		p.Add(field+".max_bytes", "the longest length is %d bytes, must be 0 or more", q.MaxBytes)
	}
	if q.Overflow > DropHead {
		p.Add(field+".overflow", "the overflow is %d, must be %d to %d", q.Overflow, RejectPublish, DropHead)
	}
	if q.TTL < 0 || q.TTL%time.Millisecond != 0 || q.TTL.Milliseconds() > math.MaxUint32 {
		p.Add(field+".ttl", "the time to live is %v, must be whole milliseconds, 0 to %v", q.TTL, math.MaxUint32*time.Millisecond)
	}
	switch {
	case q.DeliveryLimit < 0:
		p.Add(field+".delivery_limit", "the limit of deliveries is %d, must be 1 or more, or 0 for %d", q.DeliveryLimit, DefaultDeliveryLimit)
	case q.DeliveryLimit > 0 && q.Type == Classic:
		p.Add(field+".delivery_limit", "the limit of deliveries is %d, but a classic queue does not count them", q.DeliveryLimit)
	}
	if q.DeadLetter != "" {
		validateName(p, field+".dead_letter", "the dead-letter queue", q.DeadLetter)
	}
	if q.DeadLetter == q.Name && q.Name != "" {
		p.Add(field+".dead_letter", "the dead-letter queue of %q is itself, must be another one", q.Name)
	}
	if err := q.Arguments.Validate(); err != nil {
		p.Add(field+".arguments", "the arguments cannot be sent: %v", err)
	}
}

// longest is the maximum length of names, keys and other short texts in AMQP, in bytes.
const longest = 255

func validateName(p *headgate.Problems, field, what, name string) {
	if name == "" || len(name) > longest {
		p.Add(field, "the name of %s is %d bytes long, must be 1 to %d", what, len(name), longest)
	}
}

func (t *Topology) validate(p *headgate.Problems, field string) {
	if t.Setup > Exists {
		p.Add(field+"setup", "the setup is %d, must be %d to %d", t.Setup, Declare, Exists)
	}
	for i := range t.Queues {
		t.Queues[i].validate(p, fmt.Sprintf("%squeues[%d]", field, i))
	}
	for i, e := range t.Exchanges {
		at := fmt.Sprintf("%sexchanges[%d]", field, i)
		validateName(p, at+".name", "the exchange", e.Name)
		validateName(p, at+".kind", "the kind of exchange", e.Kind)
		if err := e.Arguments.Validate(); err != nil {
			p.Add(at+".arguments", "the arguments cannot be sent: %v", err)
		}
	}
	for i, b := range t.Bindings {
		at := fmt.Sprintf("%sbindings[%d]", field, i)
		validateName(p, at+".exchange", "the exchange", b.Exchange)
		validateName(p, at+".queue", "the queue", b.Queue)
		if len(b.Key) > longest {
			p.Add(at+".key", "the key is %d bytes long, must be %d at most", len(b.Key), longest)
		}
		if err := b.Arguments.Validate(); err != nil {
			p.Add(at+".arguments", "the arguments cannot be sent: %v", err)
		}
	}
}

// Apply declares or checks the topology over a connection of its own. Consumers and Publishers do
// so by themselves each time they connect. The error is a [*headgate.InvalidError] if the topology
// or the broker configuration is invalid, and a [*MismatchError] if the objects at the broker
// differ.
func (t Topology) Apply(ctx context.Context, broker Broker) error {
	broker.complete()
	var p headgate.Problems
	broker.validate(&p)
	t.validate(&p, "")
	if err := p.Err("rabbitmq"); err != nil {
		return err
	}
	l, err := broker.dial(ctx, 0)
	if err != nil {
		return err
	}
	defer l.over()
	return t.apply(ctx, l)
}

func (t *Topology) apply(ctx context.Context, l *link) error {
	for _, e := range t.Exchanges {
		err := t.settle(ctx, l, "exchange", e.Name,
			func(ch *amqp.Channel) error {
				return ch.ExchangeDeclarePassive(e.Name, e.Kind, true, false, false, false, e.Arguments)
			},
			func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare(e.Name, e.Kind, true, false, false, false, e.Arguments)
			})
		if err != nil {
			return err
		}
	}
	for i := range t.Queues {
		q := &t.Queues[i]
		arguments := q.arguments()
		err := t.settle(ctx, l, "queue", q.Name,
			func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclarePassive(q.Name, true, false, false, false, arguments)
				return err
			},
			func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare(q.Name, true, false, false, false, arguments)
				return err
			})
		if err != nil {
			return err
		}
	}
	if t.Setup != Declare {
		return nil
	}
	for _, b := range t.Bindings {
		err := t.settle(ctx, l, "binding", b.Exchange+" to "+b.Queue, nil, func(ch *amqp.Channel) error {
			return ch.QueueBind(b.Queue, b.Key, b.Exchange, false, b.Arguments)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// settle checks or declares one object, as the Setup says. Each step has a channel of its own,
// because a refusal closes the channel.
func (t *Topology) settle(ctx context.Context, l *link, kind, name string, look, declare func(*amqp.Channel) error) error {
	var steps []func(*amqp.Channel) error
	if t.Setup != Declare {
		steps = append(steps, look)
	}
	if t.Setup != Exists {
		// Declaring an existing object changes nothing, and is the only way to make the broker
		// compare its properties.
		steps = append(steps, declare)
	}
	for _, step := range steps {
		ch, err := l.channel(ctx)
		if err != nil {
			return err
		}
		if err := l.ask(ctx, fmt.Sprintf("declaring or checking the %s %q", kind, name), func() error { return step(ch) }); err != nil {
			return mismatch(kind, name, err)
		}
		if err := l.ask(ctx, "closing a channel", ch.Close); err != nil {
			return err
		}
	}
	return nil
}

// MismatchError means that an exchange or a queue at the broker differs from its description here.
// The broker reports only the first property that differs.
type MismatchError struct {
	// Kind is "exchange", "queue" or "binding", and Name is its name.
	Kind, Name string
	// Missing means that it does not exist. A binding is missing if one of its ends is.
	Missing bool
	// Property is what differs, such as "durable" or "x-max-length". Described is its value here,
	// and Found its value at the broker, both as the broker writes them. All three are empty if the
	// object is missing, or if the broker's message is not understood.
	Property, Described, Found string
	// Cause is the broker's answer.
	Cause *amqp.Error
}

// Error contains both values.
func (e *MismatchError) Error() string {
	switch {
	case e.Missing:
		return fmt.Sprintf("rabbitmq: there is no %s %q", e.Kind, e.Name)
	case e.Property != "":
		property := e.Property
		if property == deliveryLimit {
			property += ", one less than DeliveryLimit,"
		}
		return fmt.Sprintf("rabbitmq: %s of the %s %q is %s here, and %s on the broker", property, e.Kind, e.Name, e.Described, e.Found)
	}
	return fmt.Sprintf("rabbitmq: the %s %q differs from that on the broker: %s", e.Kind, e.Name, e.Cause.Reason)
}

// Unwrap returns the Cause.
func (e *MismatchError) Unwrap() error { return e.Cause }

// mismatch returns the error for a failed declaration.
func mismatch(kind, name string, err error) error {
	cause, ok := errors.AsType[*amqp.Error](err)
	if !ok || cause.Code != amqp.NotFound && cause.Code != amqp.PreconditionFailed {
		return err
	}
	e := &MismatchError{Kind: kind, Name: name, Missing: cause.Code == amqp.NotFound, Cause: cause}
	if !e.Missing {
		e.Property, e.Described, e.Found = difference(cause.Reason)
	}
	return e
}

// inequivalent matches the broker's message about a difference, which is the only place where it
// says what differs.
var inequivalent = regexp.MustCompile(`(?s)inequivalent arg '([^']*)' for .* in vhost '.*': received (.*) but current is (.*)$`)

// difference parses the broker's message about a declaration that does not match.
func difference(reason string) (property, described, found string) {
	m := inequivalent.FindStringSubmatch(reason)
	if m == nil {
		return "", "", ""
	}
	return m[1], m[2], m[3]
}
