package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate/internal/consume"
	"github.com/headgate/headgate/internal/sleep"
)

// Consumer consumes a queue. Make one with New, and call Run once. Stats may be called at
// any time.
type Consumer struct {
	config   Config
	topology Topology
	tuner    *tuner
	// letters publishes to tiers and to the dead-letter queue. It is nil before and after Run, and
	// if nothing is published.
	letters *Publisher
	ran     atomic.Bool

	engine   *consume.Engine[*amqp.Delivery, *item] // its lock guards what follows
	session  *session                               // nil while there is no connection
	held     int                                    // unsettled messages of all sessions that are not lost
	bytes    int64
	ready    int // messages in the queue
	trip     time.Duration
	headSent time.Time // when the message that was delivered last was published
	since    time.Time // when the window of the tuner began; what follows was counted since then
	done     int       // messages
	sized    int       // bodies that were seen, and their total size
	sizes    int64
	counts   Counts // those that the engine does not count
}

// item is one message in progress. The Consumer's lock guards it.
type item struct {
	consume.Item[*amqp.Delivery]
	of       *session
	attempts int // in tiers
	since    time.Time
	sent     time.Time // zero if that is not known
	running  bool
	settled  bool // settled, or lost with its connection
}

// New returns a consumer, which does nothing before Run. The error is a
// [*headgate.InvalidError] that lists everything that is wrong with the configuration.
func New(config Config) (*Consumer, error) {
	config.complete()
	handling := config.handling()
	if err := config.validate(&handling); err != nil {
		return nil, err
	}
	c := &Consumer{config: config, topology: config.topology()}
	c.tuner = newTuner(&c.config.Prefetch, handling.Workers)
	c.engine = consume.New(handling, consume.Source[*item]{
		Context: func(it *item) context.Context { return it.of.ctx },
		Wants:   (*item).wanted,
		Begin:   c.begin,
		End:     c.end,
		Letter:  c.publish,
		Settle:  c.settle,
	})
	return c, nil
}

// Run consumes until the context ends. Then it takes no more messages, gives back those that have
// not begun, waits up to config.Drain for messages that are being handled, and disconnects. It then
// returns nil, or an error that wraps [ErrAbandoned].
//
// When it first connects, Run returns a [*MismatchError] if queues or exchanges of the broker
// differ from their description. All other errors go to Hooks.Error, and Run continues. Run may be
// called once.
func (c *Consumer) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return errors.New("rabbitmq: Run was called before")
	}
	if err := c.openLetters(); err != nil {
		return err
	}
	defer c.closeLetters()
	for tries, turn := 0, 0; ctx.Err() == nil; turn++ {
		s, err := c.connect(ctx, turn)
		if err == nil {
			began := time.Now()
			err = s.serve(ctx)
			if s.ended {
				return err
			}
			if time.Since(began) > lasting {
				tries = 0
			}
		} else if _, ok := errors.AsType[*MismatchError](err); ok && c.Stats().Connects == 0 {
			return err
		}
		if ctx.Err() != nil {
			break
		}
		c.engine.Lock()
		c.engine.Trouble(err)
		c.engine.Unlock()
		tries++
		sleep.For(ctx, consume.Backoff(tries, reconnectFirst, reconnectLongest))
	}
	return nil
}

// openLetters makes the publisher of letters. It has a connection of its own, because a broker that
// is short of memory blocks connections that publish.
func (c *Consumer) openLetters() error {
	if c.config.Exhausted != ToDeadLetter && len(c.config.Retry.Tiers) == 0 {
		return nil
	}
	broker := c.config.Broker
	if broker.Name != "" {
		broker.Name += " letters"
	}
	letters, err := NewPublisher(PublisherConfig{
		Broker: broker, MaxOutstanding: c.engine.Config.Workers,
		Hooks: PublisherHooks{Error: func(err error) {
			c.engine.Lock()
			defer c.engine.Unlock()
			c.engine.Trouble(err)
		}},
	})
	if err != nil {
		return fmt.Errorf("rabbitmq: making the publisher of letters: %w", err)
	}
	c.letters = letters
	return nil
}

// closeLetters closes that publisher. A message whose letter was not confirmed is not acknowledged,
// and is delivered again.
func (c *Consumer) closeLetters() {
	if c.letters == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nobody waits for a letter any more
	_ = c.letters.Close(ctx)
}

// received accepts a delivery.
func (c *Consumer) received(s *session, d amqp.Delivery) {
	c.engine.Lock()
	defer c.engine.Unlock()
	it := &item{Item: consume.Item[*amqp.Delivery]{Message: &d}, of: s, since: time.Now()}
	if o, ok := OriginOf(d.Headers); ok && !o.Due.IsZero() && o.Queue == c.config.Queue.Name {
		it.Tier, it.attempts = o.Tier, o.Attempts
		d.Exchange, d.RoutingKey = o.Exchange, o.Key
	}
	it.sent, _ = Sent(&d)
	d.Acknowledger = settledByUs{}
	s.held[it] = struct{}{}
	c.held++
	c.bytes += int64(len(d.Body))
	c.sized++
	c.sizes += int64(len(d.Body))
	c.headSent = it.sent
	c.counts.Delivered++
	if d.Redelivered {
		c.counts.Redelivered++
	}
	if s.over {
		c.giveBack(it)
		return
	}
	c.engine.Submit(it)
}

// wanted reports whether an item may begin. When the Consumer ends, only letters may. The caller
// holds the lock.
func (it *item) wanted() bool {
	return !it.settled && !it.of.gone && (!it.of.over || it.IsLetter())
}

// begin and end enclose the time in which an item asks the gate or runs. The caller holds the lock.
func (c *Consumer) begin(it *item) {
	it.running = true
	it.of.running++
}

func (c *Consumer) end(it *item) {
	it.running = false
	it.of.running--
	it.of.rest()
}

// settle ends an item as the engine says. A message whose handler was told to stop will be handled
// by the next consumer that gets it. The caller holds the lock.
func (c *Consumer) settle(it *item, fate consume.Fate) {
	if it.settled {
		return
	}
	switch fate {
	case consume.Done:
		c.decide(it, acknowledge)
	case consume.Rejected:
		c.decide(it, discard)
	case consume.Returned:
		c.counts.Requeued++
		c.decide(it, sendBack)
	}
	c.done++
}

// giveBack returns a message that has not begun, or waits for its next try, to the queue. The
// caller holds the lock.
func (c *Consumer) giveBack(it *item) {
	c.counts.Requeued++
	if it.Tries > 0 {
		c.decide(it, sendBack)
	} else {
		c.decide(it, putBack)
	}
}

// decide makes the session settle a delivery, and frees its room. The caller holds the lock.
func (c *Consumer) decide(it *item, fate fate) {
	if s := it.of; !s.gone {
		s.settle(it.Message.DeliveryTag, fate)
	}
	c.forget(it)
}

// forget frees the room of an item. The caller holds the lock.
func (c *Consumer) forget(it *item) {
	it.settled = true
	delete(it.of.held, it)
	c.held--
	c.bytes -= int64(len(it.Message.Body))
}

// settledByUs is the Acknowledger of the deliveries that Handle gets.
type settledByUs struct{}

func (settledByUs) Ack(uint64, bool) error        { return ErrSettled }
func (settledByUs) Nack(uint64, bool, bool) error { return ErrSettled }
func (settledByUs) Reject(uint64, bool) error     { return ErrSettled }
