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
)

// Consumer consumes a queue. Make one with New, and call Run once. Stats may be called at
// any time.
type Consumer struct {
	config   Config
	topology Topology
	tuner    *tuner
	// letters writes to tiers and to the dead-letter queue. It is nil outside of Run, and
	// where nothing is written.
	letters *Publisher
	ran     atomic.Bool

	mu       sync.Mutex // guards what follows
	told     []func()   // hooks to call when mu is free
	dispatch *dispatch.Dispatcher[*item]
	session  *session // nil while there is no connection
	held     int      // unsettled, of all sessions that are not lost
	bytes    int64
	running  int // of all sessions
	ready    int // in the queue
	trip     time.Duration
	headSent time.Time // when what was delivered last was published
	window   window
	since    time.Time // when the window began
	sized    int       // how many bodies the window has seen, and how large together
	sizes    int64
	changed  time.Time // when running changed last
	counts   Counts
}

// item is one message on its way. The Consumer's lock guards it, except that whoever runs
// it may read the delivery and the letter.
type item struct {
	delivery *amqp.Delivery
	of       *session
	origin   Origin // zero unless it comes from a tier
	since    time.Time
	sent     time.Time // zero if that is not known
	tries    int       // that have failed
	running  bool
	parked   bool // until it is tried again
	settled  bool // or lost
	// letter is what to publish instead of handling the message, and written what to
	// count then.
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

// Run consumes until the context ends. Then it takes nothing more, gives back what has not
// begun, waits until what is being handled has ended, for at most config.Drain, and
// disconnects. It returns nil then, or an error that is [ErrAbandoned].
//
// It returns a [*MismatchError] if the broker has queues or exchanges that are not as they
// should be when it connects first. All other trouble is told to Hooks.Error, and waited
// out. Run may be called once.
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
		sleep(ctx, attempt.Backoff(tries, reconnectFirst, reconnectLongest))
	}
	return nil
}

// openLetters makes the publisher of letters, with a connection of its own: a broker that is
// short of memory blocks those that publish.
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

// closeLetters ends it. What was sent and not confirmed is not acknowledged, and comes again.
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

// lock and unlock guard the state. unlock calls the hooks that were to be called
// meanwhile, which may need the lock themselves.
func (c *Consumer) lock() { c.mu.Lock() }

func (c *Consumer) unlock() {
	told := c.told
	c.told = nil
	c.mu.Unlock()
	for _, f := range told {
		f()
	}
}

// tell has f called when the lock is free.
func (c *Consumer) tell(f func()) { c.told = append(c.told, f) }

// trouble tells Hooks.Error. The caller holds the lock.
func (c *Consumer) trouble(err error) {
	if h := c.config.Hooks.Error; h != nil && err != nil {
		c.tell(func() { h(err) })
	}
}

// received takes a delivery in.
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

// submit sends an item on its way. The caller holds the lock.
func (c *Consumer) submit(it *item) {
	if it.letter != nil {
		c.dispatch.Start(it)
		return
	}
	c.dispatch.Ask(it, c.config.Request(it.delivery))
}

// wanted reports whether an item may begin: when the Consumer ends, only letters may. The
// caller holds the lock.
func (it *item) wanted() bool {
	return !it.settled && !it.of.gone && (!it.of.over || it.letter != nil)
}

// begin and end stand around the time in which an item asks the gate or runs. The caller
// holds the lock.
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

// elapse adds what has passed to the window. It is called before what is held or runs
// changes.
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

// settledByUs is the Acknowledger of deliveries that a handler sees.
type settledByUs struct{}

func (settledByUs) Ack(uint64, bool) error        { return ErrSettled }
func (settledByUs) Nack(uint64, bool, bool) error { return ErrSettled }
func (settledByUs) Reject(uint64, bool) error     { return ErrSettled }
