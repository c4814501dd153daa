package rabbitmq

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Hooks are called as things happen. Any of them may be nil. They run in goroutines of
// the Consumer, several at a time, and must be quick; they may call Stats.
type Hooks struct {
	// Error is called with errors that do not belong to one message: of the broker, the topology,
	// letters, or the gate. The Consumer continues by itself.
	Error func(err error)
	// Handled is called after each attempt, with its error and how long it took.
	Handled func(d *amqp.Delivery, err error, took time.Duration)
	// Retried is called when a message will be tried again after the delay: in place if queue is
	// empty, otherwise from that tier.
	Retried func(d *amqp.Delivery, queue string, delay time.Duration, err error)
	// DeadLettered is called when a message has gone to the dead-letter queue, and Discarded
	// when it was rejected or given up.
	DeadLettered, Discarded func(d *amqp.Delivery, err error)
}

// Stats is a snapshot of a Consumer.
type Stats struct {
	// Connected says that there is a connection.
	Connected bool
	// Running is how many messages are being handled. Held is how many deliveries are not settled,
	// including these. Bytes is the total size of their bodies.
	Running, Held int
	Bytes         int64
	// Prefetch is how many messages may be held now. RoundTrip is how long the broker took for its
	// last answer. Both are 0 at first.
	Prefetch  int
	RoundTrip time.Duration
	// Ready is how many messages wait in the queue, as of the last look.
	Ready int
	// Oldest is the age of the oldest message that is held. Head is the age of the message that was
	// delivered last, which is about the age of the queue's head. They are 0 if nothing is held or
	// waits in the queue, respectively, or if messages do not say when they were sent.
	Oldest, Head time.Duration
	Counts
}

// Counts count since the Consumer was made.
type Counts struct {
	// Delivered counts deliveries, and Redelivered those of messages that the broker had delivered
	// before, to any consumer.
	Delivered, Redelivered uint64
	// Handled counts attempts, and Failed those that ended in an error. Retried counts retries in
	// place, and Delayed messages that went to a tier.
	Handled, Failed, Retried, Delayed uint64
	// DeadLettered, Rejected and Discarded count messages whose attempts have all failed.
	DeadLettered, Rejected, Discarded uint64
	// Requeued counts messages that went back to the queue because the Consumer ended or because
	// they had waited for longer than Hold.
	Requeued uint64
	// Refused counts refusals by the gate. The message waits and is tried again.
	Refused uint64
	// Abandoned counts messages whose handlers did not end in time when Run ended. Lost counts
	// messages that were held when a connection broke. Both are delivered again.
	Abandoned, Lost uint64
	// Connects counts connections, and Tuned changes of the prefetch.
	Connects, Tuned uint64
}

// Stats is a snapshot.
func (c *Consumer) Stats() Stats {
	now := time.Now()
	c.engine.Lock()
	defer c.engine.Unlock()
	s := Stats{
		Connected: c.session != nil, Running: c.engine.Running, Held: c.held, Bytes: c.bytes,
		RoundTrip: c.trip, Counts: c.counts,
	}
	e := &c.engine.Counts
	s.Handled, s.Failed, s.Retried, s.Delayed, s.Refused = e.Handled, e.Failed, e.Retried, e.Delayed, e.Refused
	s.DeadLettered, s.Rejected, s.Discarded = e.DeadLettered, e.Rejected, e.Discarded
	if c.session == nil {
		return s
	}
	s.Prefetch, s.Ready = c.session.prefetch, c.ready
	for it := range c.session.held {
		if !it.sent.IsZero() {
			s.Oldest = max(s.Oldest, now.Sub(it.sent))
		}
	}
	if c.ready > 0 && !c.headSent.IsZero() {
		s.Head = max(now.Sub(c.headSent), 0)
	}
	return s
}
