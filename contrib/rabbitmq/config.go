package rabbitmq

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/consume"
)

// Exhausted says what happens to a message whose attempts have all failed.
type Exhausted uint8

const (
	// ToDeadLetter publishes the message to Config.DeadLetter, with headers that give the reason.
	// It is the zero Exhausted.
	ToDeadLetter = Exhausted(consume.ToDeadLetter)
	// Reject rejects the message: the broker sends it to where the queue or a policy says, or drops
	// it. The reason of the failure is lost.
	Reject = Exhausted(consume.Reject)
	// Block keeps trying in place. Meanwhile, the message uses one place of the prefetch.
	Block = Exhausted(consume.Block)
	// Discard counts the message as done, and calls Hooks.Discarded.
	Discard = Exhausted(consume.Discard)
)

// Config says what to consume and how. New returns an error for an invalid Config.
type Config struct {
	Broker Broker
	// Queue is the queue to consume. If its DeadLetter is empty, it is set to that of the Config.
	Queue Queue
	// Exchanges and Bindings lead messages to the queue. Setup says whether they, and the queues of
	// Retry and DeadLetter, are declared or checked.
	Exchanges []Exchange
	Bindings  []Binding
	Setup     Setup

	// Handle does the work for one message. Several calls run at a time. The message is done when
	// Handle returns nil. An error or a panic is a failed attempt. The context ends when Timeout
	// has passed. It also ends when the connection is lost (its cause is then [ErrLost]), and when
	// Run has to end; in these two cases, the result of Handle is ignored. The Consumer settles the
	// delivery. The delivery's own Ack, Nack and Reject return [ErrSettled].
	//
	// A message may be handled more than once: see the package comment.
	Handle func(ctx context.Context, d *amqp.Delivery) error
	// Timeout ends the context of each call of Handle. Zero means no limit.
	Timeout time.Duration
	// Workers is how many messages may be handled at a time, 1 to 10,000. Zero means 64.
	Workers int
	// Gate decides whether a message may be handled now: by a rate, by permits, by an adaptive
	// limit, or by a chain of them. Messages that it refuses wait, and messages with another
	// Request.Key go first. The Consumer only calls TryAcquire, so a queue in the gate is not used.
	// A nil Gate admits everything.
	Gate flow.Gate
	// Request returns the request to the gate for a message. Messages whose requests have the same
	// Key wait for each other at the gate. Nil means the zero Request for all messages.
	Request func(d *amqp.Delivery) flow.Request
	// Outcome returns the outcome of an attempt for the gate, given its error. Nil means
	// flow.OutcomeOf.
	Outcome func(err error) flow.Outcome

	// Prefetch says how many unsettled messages the broker may deliver.
	Prefetch Prefetch
	// Hold is how long a message may wait here before it is handled, for instance at the gate. Then
	// it goes back to the queue, so that other consumers can get it. Otherwise the broker would
	// close the channel after its consumer_timeout, 30 minutes by default. Zero means 10 minutes.
	// Hold should be less than half of the consumer_timeout. If handlers take longer than the rest
	// of that time, increase the consumer_timeout.
	Hold time.Duration

	// Retry says how often and when to try again.
	Retry Retry
	// DeadLetter is the queue for messages whose attempts have all failed. If its Name is empty,
	// there is no such queue. Its zero Type is Quorum.
	DeadLetter Queue
	// Exhausted says what happens to messages whose attempts have all failed. ToDeadLetter, the
	// zero value, needs DeadLetter.
	Exhausted Exhausted

	// Drain is how long messages that are being handled may take when Run ends. After that their
	// contexts end. Zero means 20 seconds; the maximum is 5 minutes.
	Drain time.Duration
	// Hooks are called when something happens.
	Hooks Hooks
}

// Prefetch bounds how many messages a Consumer holds. Within the bounds, the Consumer itself
// determines how many it needs so that workers never wait for the network: as many as are handled
// at a time, plus as many as are handled during two round trips. It holds no more than that, so
// that other consumers of the queue find work. While the prefetch changes from one number to
// another, the Consumer may briefly hold the sum of both.
type Prefetch struct {
	// Min and Max are the bounds, 1 to 65,535. Zero means 10 and 300. Equal bounds fix the
	// prefetch. A queue with SingleActive needs equal bounds, because a consumer that changes its
	// prefetch loses its turn.
	Min, Max int
	// MaxBytes bounds the bodies of the messages that are held. The Consumer lowers the prefetch
	// accordingly, down to Min, given the sizes of the messages that it has seen. Zero means 64
	// MiB.
	MaxBytes int64
	// Every is the interval at which the prefetch is adjusted. Zero means 1 second; the minimum is
	// 100 milliseconds.
	Every time.Duration
}

// Retry says how often and when to try a message again.
type Retry struct {
	// InPlace is how often to try again here before the message goes to the first tier. Without
	// tiers, the message is then exhausted. It does not apply to messages from tiers.
	InPlace int
	// Backoff is the wait before the first retry. It doubles with each retry, up to MaxBackoff, and
	// is shortened by up to a half at random. Zero means 100 ms and 10 s. An error that says when
	// to try again (see Later) can make the wait longer, but not shorter.
	Backoff, MaxBackoff time.Duration
	// Tiers are queues in which messages wait, in the order in which a message passes them.
	Tiers []Tier
}

// Tier is a queue in which messages wait for a delay before they go back to the consumed queue.
// Each delay has a queue of its own, in which all messages wait equally long. Messages expire only
// at the head of a queue, so one with a longer delay would hold up those behind it.
//
// A tier is always a quorum queue, whatever the consumed queue is, because a quorum queue keeps a
// message until the other queue has it.
type Tier struct {
	// Delay is how long a message waits: 1 ms or more, in whole milliseconds.
	Delay time.Duration
	// Queue is the name. Empty means that of the consumed queue, ".retry." and the delay,
	// such as "orders.retry.1m0s".
	Queue string
}

// Defaults and bounds of a Config.
const (
	DefaultWorkers     = consume.DefaultWorkers
	DefaultMinPrefetch = 10
	DefaultMaxPrefetch = 300
	DefaultDrain       = consume.DefaultDrain

	maxWorkers  = 10_000
	maxPrefetch = 65_535
	leastEvery  = 100 * time.Millisecond
)

// complete sets the defaults. It changes no data that the caller shares.
func (c *Config) complete() {
	c.Broker.complete()
	consume.Or(&c.Prefetch.Max, max(DefaultMaxPrefetch, c.Prefetch.Min))
	consume.Or(&c.Prefetch.Min, min(DefaultMinPrefetch, c.Prefetch.Max))
	consume.Or(&c.Prefetch.MaxBytes, 64<<20)
	consume.Or(&c.Prefetch.Every, time.Second)
	consume.Or(&c.Hold, 10*time.Minute)
	consume.Or(&c.Queue.DeadLetter, c.DeadLetter.Name)
	c.Retry.Tiers = append([]Tier(nil), c.Retry.Tiers...)
	for i := range c.Retry.Tiers {
		tier := &c.Retry.Tiers[i]
		consume.Or(&tier.Queue, fmt.Sprintf("%s.retry.%v", c.Queue.Name, tier.Delay))
	}
}

// handling returns what the engine needs to know, with the defaults. The Config must be complete.
func (c *Config) handling() consume.Config[*amqp.Delivery] {
	h := consume.Config[*amqp.Delivery]{
		Broker: "rabbitmq", Noun: "message", Place: "queue", MaxWorkers: maxWorkers, MinDelay: time.Millisecond, LastExhausted: consume.Reject,
		Handle: c.Handle, Timeout: c.Timeout, Workers: c.Workers, Gate: c.Gate, Request: c.Request, Outcome: c.Outcome,
		InPlace: c.Retry.InPlace, Backoff: c.Retry.Backoff, MaxBackoff: c.Retry.MaxBackoff,
		DeadLetter: c.DeadLetter.Name, Exhausted: consume.Exhausted(c.Exhausted), Drain: c.Drain,
		Hooks: consume.Hooks[*amqp.Delivery]{
			Error: c.Hooks.Error, Handled: c.Hooks.Handled, Retried: c.Hooks.Retried,
			DeadLettered: c.Hooks.DeadLettered, Discarded: c.Hooks.Discarded,
		},
	}
	for _, tier := range c.Retry.Tiers {
		h.Tiers = append(h.Tiers, consume.Tier{Name: tier.Queue, Delay: tier.Delay})
	}
	h.Complete()
	return h
}

// topology returns everything that the Consumer needs at the broker. The Config must be complete.
func (c *Config) topology() Topology {
	t := Topology{Setup: c.Setup, Exchanges: c.Exchanges, Bindings: c.Bindings}
	if c.DeadLetter.Name != "" {
		t.Queues = append(t.Queues, c.DeadLetter)
	}
	t.Queues = append(t.Queues, c.Queue)
	for _, tier := range c.Retry.Tiers {
		t.Queues = append(t.Queues, Queue{Name: tier.Queue, TTL: tier.Delay, DeadLetter: c.Queue.Name})
	}
	return t
}

// validate checks a Config after complete.
func (c *Config) validate(handling *consume.Config[*amqp.Delivery]) error {
	var p headgate.Problems
	c.Broker.validate(&p)
	c.Queue.validate(&p, "queue")
	(&Topology{Setup: c.Setup, Exchanges: c.Exchanges, Bindings: c.Bindings}).validate(&p, "")
	handling.Validate(&p)
	c.Prefetch.validate(&p, c.Queue.SingleActive)
	if c.Hold < 0 {
		p.Add("hold", "the time to hold a message is %v, must be more than 0", c.Hold)
	}
	c.validateQueues(&p)
	return p.Err("rabbitmq")
}

func (f *Prefetch) validate(p *headgate.Problems, single bool) {
	consume.Between(p, "prefetch.min", "the least prefetch", int64(f.Min), 1, maxPrefetch)
	consume.Between(p, "prefetch.max", "the largest prefetch", int64(f.Max), 1, maxPrefetch)
	if f.Min > f.Max {
		p.Add("prefetch.min", "the least prefetch is %d, must be prefetch.max (%d) at most", f.Min, f.Max)
	}
	if single && f.Min != f.Max {
		p.Add("prefetch", "the prefetch is %d to %d, must be one number for a queue with a single active consumer", f.Min, f.Max)
	}
	if f.MaxBytes < 1 {
		p.Add("prefetch.max_bytes", "the memory is %d bytes, must be more than 0", f.MaxBytes)
	}
	if f.Every < leastEvery {
		p.Add("prefetch.every", "the prefetch is looked at every %v, must be %v or more", f.Every, leastEvery)
	}
}

// validateQueues checks the queues of Retry and DeadLetter.
func (c *Config) validateQueues(p *headgate.Problems) {
	used := consume.Places{c.Queue.Name: "queue"}
	for i, tier := range c.Retry.Tiers {
		field := fmt.Sprintf("retry.tiers[%d].queue", i)
		(&Queue{Name: tier.Queue, TTL: max(tier.Delay, 0)}).validate(p, field)
		used.Add(p, field, "queue", tier.Queue)
	}
	if dead := c.DeadLetter.Name; dead != "" {
		// The broker itself sends messages there that exceed the DeliveryLimit.
		used.Add(p, "dead_letter", "queue", dead)
		c.DeadLetter.validate(p, "dead_letter")
		if c.Queue.DeadLetter != dead {
			p.Add("queue.dead_letter", "the dead-letter queue is %q here, and %q in dead_letter: must be the same", c.Queue.DeadLetter, dead)
		}
	}
}
