package rabbitmq

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Hooks are called as things happen. Any of them may be nil. They run in goroutines of
// the Consumer, several at a time, and must be quick; they may call Stats.
type Hooks struct {
	// Error is called with trouble that is not of one message: with the broker, the
	// topology, letters, the gate. The Consumer goes on by itself.
	Error func(err error)
	// Handled is called after each attempt, with its error and how long it took.
	Handled func(d *amqp.Delivery, err error, took time.Duration)
	// Retried is called when a message will be tried again after the delay: here if queue is
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
	// Running is how many messages are being handled, and Held how many were delivered and
	// are not settled, these included. Bytes are the bodies of those that are held.
	Running, Held int
	Bytes         int64
	// Prefetch is how many may be held now, and RoundTrip how long the broker took to
	// answer when it was asked last. Both are 0 at first.
	Prefetch  int
	RoundTrip time.Duration
	// Ready is how many messages wait in the queue, as of the last look.
	Ready int
	// Oldest is the age of the oldest message that is held, and Head that of the one that
	// was delivered last, which is about that of the queue's head; 0 if nothing is held, if
	// nothing waits in the queue, and if messages do not say when they were sent.
	Oldest, Head time.Duration
	Counts
}

// Counts count since the Consumer was made.
type Counts struct {
	// Delivered counts deliveries, and Redelivered those that the broker has delivered
	// before, to whomever.
	Delivered, Redelivered uint64
	// Handled counts attempts, and Failed those that ended in an error. Retried counts
	// messages that were to be tried again in place, and Delayed those that went to a tier.
	Handled, Failed, Retried, Delayed uint64
	// DeadLettered, Rejected and Discarded count messages that no attempt could handle.
	DeadLettered, Rejected, Discarded uint64
	// Requeued counts messages that went back to the queue because the Consumer ended, or
	// they waited for longer than Hold.
	Requeued uint64
	// Refused counts what the gate has refused for now.
	Refused uint64
	// Abandoned counts messages whose handlers did not end in time when Run ended, and Lost
	// those that were held when a connection broke: both come again.
	Abandoned, Lost uint64
	// Connects counts connections, and Tuned changes of the prefetch.
	Connects, Tuned uint64
}

// Stats is a snapshot.
func (c *Consumer) Stats() Stats {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{
		Connected: c.session != nil, Running: c.running, Held: c.held, Bytes: c.bytes,
		RoundTrip: c.trip, Counts: c.counts,
	}
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
