package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/attempt"
	"github.com/headgate/headgate/internal/dispatch"
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

	mu       sync.Mutex // guards what follows
	told     []func()   // hooks to call after mu was unlocked
	dispatch *dispatch.Dispatcher[*item]
	session  *session // nil while there is no connection
	held     int      // unsettled messages of all sessions that are not lost
	bytes    int64
	running  int // of all sessions
	ready    int // messages in the queue
	trip     time.Duration
	headSent time.Time // when the message that was delivered last was published
	window   window
	since    time.Time // when the window began
	sized    int       // how many bodies were seen in the window, and their total size
	sizes    int64
	changed  time.Time // when running changed last
	counts   Counts
}

// item is one message in progress. The Consumer's lock guards it, except that the goroutine that
// runs it may read the delivery and the letter.
type item struct {
	delivery *amqp.Delivery
	of       *session
	origin   Origin // zero unless it comes from a tier
	since    time.Time
	sent     time.Time // zero if that is not known
	tries    int       // failed attempts
	running  bool
	parked   bool // waits for its next try
	settled  bool // settled, or lost with its connection
	// letter is what to publish instead of handling the message. written updates the counts after
	// that.
	letter  *Message
	written func()
}

// New returns a consumer, which does nothing before Run. The error is a
// [*headgate.InvalidError] that lists everything that is wrong with the configuration.
func New(config Config) (*Consumer, error) {
	config.complete()
	if err := config.validate(); err != nil {
		return nil, err
	}
	c := &Consumer{config: config, topology: config.topology()}
	c.tuner = newTuner(&c.config.Prefetch, config.Workers)
	c.dispatch = dispatch.New(dispatch.Config[*item]{
		Lock:    (*locker)(c),
		Gate:    config.Gate,
		Workers: config.Workers,
		Context: func(it *item) context.Context { return it.of.ctx },
		Wants:   (*item).wanted,
		Begin:   c.begin,
		End:     c.end,
		Run:     c.run,
		Refused: c.refused,
		Never:   func(it *item, err error) { c.fail(it, Permanent(err)) },
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
		c.lock()
		c.trouble(err)
		c.unlock()
		tries++
		sleep.For(ctx, attempt.Backoff(tries, reconnectFirst, reconnectLongest))
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
		Broker: broker, MaxOutstanding: c.config.Workers,
		Hooks: PublisherHooks{Error: func(err error) {
			c.lock()
			defer c.unlock()
			c.trouble(err)
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

// locker is the Consumer's lock, for the dispatcher.
type locker Consumer

func (l *locker) Lock()   { (*Consumer)(l).lock() }
func (l *locker) Unlock() { (*Consumer)(l).unlock() }

// lock and unlock guard the state. unlock also calls the hooks that tell has collected, because
// they may need the lock themselves.
func (c *Consumer) lock() { c.mu.Lock() }

func (c *Consumer) unlock() {
	told := c.told
	c.told = nil
	c.mu.Unlock()
	for _, f := range told {
		f()
	}
}

// tell makes unlock call f.
func (c *Consumer) tell(f func()) { c.told = append(c.told, f) }

// trouble makes unlock call Hooks.Error. The caller holds the lock.
func (c *Consumer) trouble(err error) {
	if h := c.config.Hooks.Error; h != nil && err != nil {
		c.tell(func() { h(err) })
	}
}

// received accepts a delivery.
func (c *Consumer) received(s *session, d amqp.Delivery) {
	c.lock()
	defer c.unlock()
	it := &item{delivery: &d, of: s, since: time.Now()}
	if o, ok := OriginOf(d.Headers); ok && !o.Due.IsZero() && o.Queue == c.config.Queue.Name {
		it.origin = o
		d.Exchange, d.RoutingKey = o.Exchange, o.Key
	}
	it.sent, _ = Sent(&d)
	c.elapse()
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
	c.submit(it)
}

// submit hands an item to the dispatcher. The caller holds the lock.
func (c *Consumer) submit(it *item) {
	if it.letter != nil {
		c.dispatch.Start(it)
		return
	}
	c.dispatch.Ask(it, c.config.Request(it.delivery))
}

// wanted reports whether an item may begin. When the Consumer ends, only letters may. The caller
// holds the lock.
func (it *item) wanted() bool {
	return !it.settled && !it.of.gone && (!it.of.over || it.letter != nil)
}

// begin and end enclose the time in which an item asks the gate or runs. The caller holds the lock.
func (c *Consumer) begin(it *item) {
	c.elapse()
	it.running = true
	it.of.running++
	c.running++
}

func (c *Consumer) end(it *item) {
	c.elapse()
	it.running = false
	it.of.running--
	c.running--
	it.of.rest()
}

// elapse adds the time since the last change to the window. It is called before the number of held
// or running messages changes.
func (c *Consumer) elapse() {
	now := time.Now()
	passed := now.Sub(c.changed)
	c.changed = now
	c.window.busy += time.Duration(c.running) * passed
	if s := c.session; s != nil {
		c.window.waiting += time.Duration(max(len(s.held)-s.running-s.parked, 0)) * passed
	}
}

func (c *Consumer) refused(it *item, err error) {
	c.counts.Refused++
	if _, ok := errors.AsType[*flow.Rejection](err); !ok && it.of.ctx.Err() == nil {
		c.trouble(err)
	}
}

// settledByUs is the Acknowledger of the deliveries that Handle gets.
type settledByUs struct{}

func (settledByUs) Ack(uint64, bool) error        { return ErrSettled }
func (settledByUs) Nack(uint64, bool, bool) error { return ErrSettled }
func (settledByUs) Reject(uint64, bool) error     { return ErrSettled }
