package rabbitmq

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

// Exhausted says what becomes of a message that no attempt could handle.
type Exhausted uint8

const (
	// ToDeadLetter publishes the message to Config.DeadLetter, with headers that say why. It
	// is the zero Exhausted.
	ToDeadLetter Exhausted = iota
	// Reject rejects the message: the broker sends it to wherever the queue or a policy says,
	// or drops it. Why it failed is not told.
	Reject
	// Block keeps trying in place. The message takes a place of the prefetch meanwhile.
	Block
	// Discard counts the message as done. Hooks.Discarded hears of it.
	Discard
)

// Config says what to consume and how. New refuses one that cannot work.
type Config struct {
	Broker Broker
	// Queue is the queue to consume. Its DeadLetter may be left out: it is that of the
	// Config.
	Queue Queue
	// Exchanges and Bindings are what leads to the queue, and Setup says whether they and
	// the queues of Retry and DeadLetter are declared or checked.
	Exchanges []Exchange
	Bindings  []Binding
	Setup     Setup

	// Handle does the work of one message. Several calls run at a time. The message is
	// done when Handle returns nil; any error is an attempt that failed, and so is a panic.
	// The context ends when Timeout has passed, when the connection is lost (its cause is
	// [ErrLost] then), and when Run has to end: what Handle returns after the last two does
	// not count. The Consumer settles the delivery; its own Ack, Nack and Reject
	// return [ErrSettled].
	//
	// A message may be handled more than once: see the package comment.
	Handle func(ctx context.Context, d *amqp.Delivery) error
	// Timeout ends the context of each call of Handle. Zero means no limit.
	Timeout time.Duration
	// Workers is how many messages may be handled at a time, 1 to 10,000. Zero means 64.
	Workers int
	// Gate decides whether a message may be handled now: by a rate, by permits, by an
	// adaptive limit, or by a chain of them. Messages that it refuses wait, and others with
	// another Request.Key go first. The Consumer calls TryAcquire only, so a queue in the
	// gate is not used. Nil lets everything in.
	Gate flow.Gate
	// Request says how to ask the gate for a message. Messages whose requests have the same
	// Key wait for each other at the gate. Nil asks with the zero Request.
	Request func(d *amqp.Delivery) flow.Request
	// Outcome tells the gate how an attempt ended. Nil means DefaultOutcome.
	Outcome func(err error) flow.Outcome

	// Prefetch says how many messages the broker may hand out before they are done.
	Prefetch Prefetch
	// Hold is how long a message may wait here before it is handled, at the gate for
	// instance. Then it goes back to the queue, so that others may have it, and so that
	// the broker, which closes the channel after its consumer_timeout, does not. Zero
	// means 10 minutes; it should be less than half of the consumer_timeout, 30 minutes by
	// default. Handlers that take longer than the rest need a larger consumer_timeout.
	Hold time.Duration

	// Retry says how often and when to try again.
	Retry Retry
	// DeadLetter is the queue for messages that no attempt could handle. With an empty
	// Name there is none. Its zero Type is Quorum.
	DeadLetter Queue
	// Exhausted says what becomes of them. ToDeadLetter, which is the zero value, needs
	// DeadLetter.
	Exhausted Exhausted

	// Drain is how long messages that are being handled may take to end when Run ends.
	// After that their contexts end. Zero means 20 seconds; at most 5 minutes.
	Drain time.Duration
	// Hooks are told what happens.
	Hooks Hooks
}

// Prefetch bounds how many messages a Consumer holds. Within the bounds the Consumer finds
// out by itself how many it needs so that workers never wait for the network: as many as are
// handled at a time, and as many as are handled during two round trips. It holds no more
// than that, so that other consumers of the queue find work. While it changes from one
// number to another, it may hold both numbers together for a moment.
type Prefetch struct {
	// Min and Max are the bounds, 1 to 65,535. Zero means 10 and 300; equal bounds fix the
	// prefetch. A queue with SingleActive needs equal bounds, since a consumer that changes
	// loses its turn.
	Min, Max int
	// MaxBytes bounds the bodies of the messages that are held: the Consumer lowers the
	// prefetch, down to Min, for messages that are as large as those it has seen. Zero means
	// 64 MiB.
	MaxBytes int64
	// Every is the time between two looks. Zero means 1 second; at least 100 milliseconds.
	Every time.Duration
}

// Retry says how often and when to try a message again.
type Retry struct {
	// InPlace is how often to try again here before the message goes to the first tier, or
	// is exhausted where there is none. It does not apply to messages from tiers.
	InPlace int
	// Backoff is the wait before the first try again; it doubles with each, up to
	// MaxBackoff, and is shortened by up to a half at random. Zero means 100 ms and 10 s.
	// An error that says when to come again, see Later, makes it longer, never shorter.
	Backoff, MaxBackoff time.Duration
	// Tiers are queues in which messages wait, in the order in which a message passes them.
	Tiers []Tier
}

// Tier is a queue from which messages go back to the queue that is consumed after a delay.
// Each has a queue of its own, in which all wait equally long: messages expire at the head
// of a queue only, so one that waits longer would hold up those behind it.
//
// It is a quorum queue, whatever the consumed queue is: that keeps a message until the other
// queue has it.
type Tier struct {
	// Delay is how long a message waits, 1 ms or more, whole milliseconds.
	Delay time.Duration
	// Queue is the name. Empty means that of the consumed queue, ".retry." and the delay,
	// such as "orders.retry.1m0s".
	Queue string
}

// Defaults and bounds of a Config.
const (
	DefaultWorkers     = 64
	DefaultMinPrefetch = 10
	DefaultMaxPrefetch = 300
	DefaultDrain       = 20 * time.Second

	maxWorkers  = 10_000
	maxPrefetch = 65_535
	maxDrain    = 5 * time.Minute
	leastEvery  = 100 * time.Millisecond
)

// complete fills in what is left out. It changes nothing of the caller's.
func (c *Config) complete() {
	c.Broker.complete()
	or(&c.Workers, DefaultWorkers)
	or(&c.Prefetch.Max, max(DefaultMaxPrefetch, c.Prefetch.Min))
	or(&c.Prefetch.Min, min(DefaultMinPrefetch, c.Prefetch.Max))
	or(&c.Prefetch.MaxBytes, 64<<20)
	or(&c.Prefetch.Every, time.Second)
	or(&c.Hold, 10*time.Minute)
	or(&c.Retry.Backoff, 100*time.Millisecond)
	or(&c.Retry.MaxBackoff, max(10*time.Second, c.Retry.Backoff))
	or(&c.Drain, DefaultDrain)
	or(&c.Queue.DeadLetter, c.DeadLetter.Name)
	c.Retry.Tiers = append([]Tier(nil), c.Retry.Tiers...)
	for i := range c.Retry.Tiers {
		tier := &c.Retry.Tiers[i]
		or(&tier.Queue, fmt.Sprintf("%s.retry.%v", c.Queue.Name, tier.Delay))
	}
	if c.Outcome == nil {
		c.Outcome = DefaultOutcome
	}
	if c.Request == nil {
		c.Request = func(*amqp.Delivery) flow.Request { return flow.Request{} }
	}
}

// topology is all that the Consumer needs. It expects a Config that is complete.
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

// validate expects a Config that is complete.
func (c *Config) validate() error {
	var p headgate.Problems
	c.Broker.validate(&p)
	c.Queue.validate(&p, "queue")
	(&Topology{Setup: c.Setup, Exchanges: c.Exchanges, Bindings: c.Bindings}).validate(&p, "")
	if c.Handle == nil {
		p.Add("handle", "there is no function to handle messages with")
	}
	if c.Timeout < 0 {
		p.Add("timeout", "the timeout is %v, must be 0 or more", c.Timeout)
	}
	between(&p, "workers", "the number of workers", int64(c.Workers), 1, maxWorkers)
	c.Prefetch.validate(&p, c.Queue.SingleActive)
	if c.Hold < 0 {
		p.Add("hold", "the time to hold a message is %v, must be more than 0", c.Hold)
	}
	if c.Drain < 0 || c.Drain > maxDrain {
		p.Add("drain", "the time to drain is %v, must be more than 0 and at most %v", c.Drain, maxDrain)
	}
	c.Retry.validate(&p)
	c.validateQueues(&p)
	return p.Err("rabbitmq")
}

func (f *Prefetch) validate(p *headgate.Problems, single bool) {
	between(p, "prefetch.min", "the least prefetch", int64(f.Min), 1, maxPrefetch)
	between(p, "prefetch.max", "the largest prefetch", int64(f.Max), 1, maxPrefetch)
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

func (r *Retry) validate(p *headgate.Problems) {
	if r.InPlace < 0 {
		p.Add("retry.in_place", "the number of tries in place is %d, must be 0 or more", r.InPlace)
	}
	if r.Backoff < 0 {
		p.Add("retry.backoff", "the backoff is %v, must be more than 0", r.Backoff)
	}
	if r.MaxBackoff < r.Backoff {
		p.Add("retry.max_backoff", "the longest backoff is %v, must be the first backoff (%v) or more", r.MaxBackoff, r.Backoff)
	}
	for i, tier := range r.Tiers {
		if tier.Delay < time.Millisecond {
			p.Add(fmt.Sprintf("retry.tiers[%d].delay", i), "the delay is %v, must be 1ms or more", tier.Delay)
		}
		q := Queue{Name: tier.Queue, TTL: max(tier.Delay, 0)}
		q.validate(p, fmt.Sprintf("retry.tiers[%d].queue", i))
	}
}

// validateQueues looks at all queues together: a message must not come back to where it
// has been.
func (c *Config) validateQueues(p *headgate.Problems) {
	used := map[string]string{c.Queue.Name: "queue"} // name to field
	check := func(field, name string) {
		if other, ok := used[name]; ok {
			p.Add(field, "the queue %q is also %s, must be another one", name, other)
			return
		}
		used[name] = field
	}
	for i, tier := range c.Retry.Tiers {
		check(fmt.Sprintf("retry.tiers[%d].queue", i), tier.Queue)
	}
	switch dead := c.DeadLetter.Name; {
	case c.Exhausted > Discard:
		p.Add("exhausted", "exhausted is %d, must be %d to %d", c.Exhausted, ToDeadLetter, Discard)
	case c.Exhausted == ToDeadLetter && dead == "":
		p.Add("dead_letter", "there is no dead-letter queue: name one, or say with exhausted that messages which fail are rejected, block or are discarded")
	case dead != "":
		// The broker itself sends there what exceeds the limit of deliveries.
		check("dead_letter", dead)
		c.DeadLetter.validate(p, "dead_letter")
		if c.Queue.DeadLetter != dead {
			p.Add("queue.dead_letter", "the dead-letter queue is %q here, and %q in dead_letter: must be the same", c.Queue.DeadLetter, dead)
		}
	}
}
