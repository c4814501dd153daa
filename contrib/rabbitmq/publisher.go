package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/consume"
	"github.com/headgate/headgate/internal/sleep"
)

// PublisherConfig says how to publish. NewPublisher returns an error for an invalid one.
type PublisherConfig struct {
	Broker Broker
	// Topology is declared or checked each time the Publisher connects.
	Topology Topology
	// MaxOutstanding is how many messages may be in memory until they are confirmed, 1 to
	// 1,000,000. Further calls of Publish wait. Zero means 1,000.
	MaxOutstanding int
	// ConfirmTimeout is how long the broker may take to confirm a message while it is not blocked.
	// After that, the Publisher connects anew. Zero means 1 minute.
	ConfirmTimeout time.Duration
	// AtMostOnce makes Publish return [ErrUnconfirmed] for messages that were sent over a
	// connection that broke. Otherwise, unconfirmed messages are sent again. They may then arrive
	// twice, with the same MessageId.
	AtMostOnce bool
	// Hooks are called when something happens.
	Hooks PublisherHooks
}

// PublisherHooks are called as things happen. Any of them may be nil. They run in
// goroutines of the Publisher, and must be quick; they may call Stats.
type PublisherHooks struct {
	// Error is called with errors of the connection or the topology. The Publisher continues by
	// itself.
	Error func(err error)
	// Blocked is called when the broker stops taking messages, with its reason, such as "low on
	// memory". Unblocked is called when it takes messages again, or when the connection has ended.
	Blocked   func(reason string)
	Unblocked func()
}

// PublisherStats is a snapshot of a Publisher.
type PublisherStats struct {
	// Outstanding is how many messages are in memory. Connected says that there is a
	// connection, and Blocked that the broker takes no messages now.
	Outstanding        int
	Connected, Blocked bool
	PublisherCounts
}

// PublisherCounts count since the Publisher was made.
type PublisherCounts struct {
	// Confirmed, Refused and Returned count messages by their results. Unsent and Unconfirmed count
	// messages whose context ended, or that were left when the Publisher ended: Unsent before they
	// were sent, and Unconfirmed afterwards.
	Confirmed, Refused, Returned, Unsent, Unconfirmed uint64
	// Resent counts messages that were sent again. Connects counts connections. Blocks counts how
	// often the broker stopped taking messages.
	Resent, Connects, Blocks uint64
}

// Publisher publishes over a connection of its own, and reconnects when it breaks. Make one with
// NewPublisher, and end it with Close. Its methods are safe for concurrent use.
type Publisher struct {
	config PublisherConfig
	slots  chan struct{} // one element for each message in memory
	// work receives a value when there is something to write, or when writing is possible again.
	work    chan struct{}
	life    context.Context
	kill    context.CancelFunc
	closing chan struct{} // closed when no new messages are accepted
	close   func()
	empty   chan struct{} // receives a value when no message is in memory
	ended   chan struct{} // closed when all goroutines have ended

	mu sync.Mutex // guards what follows
	// waiting has the messages that were not written yet, in order. isolated are written before
	// them, one by one, because one of them made the broker close the channel.
	waiting, isolated []*publication
	session           *outlet // nil while there is no connection
	problem           error   // why there is none; nil before the first try has failed
	outstanding       int
	over              bool // nothing is written any more
	counts            PublisherCounts
}

// publication is a message in progress. The Publisher's lock guards it.
type publication struct {
	message  Message
	err      error
	returned *ReturnedError
	written  bool      // it was written at least once
	at       time.Time // when it was written last
	left     bool      // its caller no longer waits
	over     bool
	done     chan struct{} // closed when it has ended
}

// Defaults of a PublisherConfig.
const (
	DefaultMaxOutstanding = 1000
	DefaultConfirmTimeout = time.Minute
)

// NewPublisher returns a Publisher, which connects by itself. The error is a
// [*headgate.InvalidError] that lists everything that is wrong with the configuration.
func NewPublisher(config PublisherConfig) (*Publisher, error) {
	config.Broker.complete()
	consume.Or(&config.MaxOutstanding, DefaultMaxOutstanding)
	consume.Or(&config.ConfirmTimeout, DefaultConfirmTimeout)
	var p headgate.Problems
	config.Broker.validate(&p)
	config.Topology.validate(&p, "topology.")
	const most = 1_000_000
	consume.Between(&p, "max_outstanding", "the number of messages in memory", int64(config.MaxOutstanding), 1, most)
	if config.ConfirmTimeout < leastEvery {
		p.Add("confirm_timeout", "the timeout of confirms is %v, must be %v or more", config.ConfirmTimeout, leastEvery)
	}
	if err := p.Err("rabbitmq"); err != nil {
		return nil, err
	}
	publisher := &Publisher{
		config:  config,
		slots:   make(chan struct{}, config.MaxOutstanding),
		work:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		empty:   make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
	publisher.close = sync.OnceFunc(func() { close(publisher.closing) })
	publisher.life, publisher.kill = context.WithCancel(context.Background())
	go publisher.run()
	return publisher, nil
}

// Publish returns when the broker has confirmed the message. A nil error means that the message is
// in every queue that gets it, on disk if the queue keeps it there. Publish waits while the broker
// takes no messages, while there is no connection, and while MaxOutstanding messages are in
// progress. It returns when the context ends, whatever the broker does. Errors are:
//
//   - a [*headgate.InvalidError]: the message can never be sent;
//   - a [*ReturnedError]: no queue gets the message, and it is lost;
//   - [ErrRefused]: a queue is full, or the broker could not store the message;
//   - a [*PublishError]: the broker closes the channel because of this message, for instance
//     because the exchange does not exist;
//   - [ErrUnsent], and the context's error or [ErrClosed]: the message was not sent;
//   - [ErrUnconfirmed], and the context's error or [ErrClosed]: the message was sent, but may or
//     may not have arrived.
//
// While there is no connection, the last two also wrap the reason, such as a [*MismatchError] of
// the topology.
//
// The Publisher reads the message's headers and body until Publish returns, and after
// [ErrUnconfirmed] until the broker has confirmed the message. Do not change them until then.
func (p *Publisher) Publish(ctx context.Context, m Message) error {
	if err := m.validate(); err != nil {
		return err
	}
	m.complete()
	select {
	case <-p.closing:
		return p.unsent(ErrClosed)
	default:
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return p.unsent(context.Cause(ctx))
	case <-p.closing:
		return p.unsent(ErrClosed)
	}
	w := &publication{message: m, done: make(chan struct{})}
	if !p.enter(w) {
		<-p.slots
		return p.unsent(ErrClosed)
	}
	p.wake()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return p.leave(w, context.Cause(ctx))
	}
}

// enter adds a publication to those that wait, unless the Publisher has ended.
func (p *Publisher) enter(w *publication) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	p.outstanding++
	p.waiting = append(p.waiting, w)
	return true
}

func (p *Publisher) unsent(cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Unsent++
	return p.failed(ErrUnsent, cause)
}

// failed returns the error for a message that has no result, with the reason if there is no
// connection. The caller holds the lock.
func (p *Publisher) failed(what, cause error) error {
	if p.session == nil && p.problem != nil {
		return fmt.Errorf("%w: %w; there is no connection: %w", what, cause, p.problem)
	}
	return fmt.Errorf("%w: %w", what, cause)
}

// leave is called when a caller stops waiting. A message that was not written will not be written.
// One that was written stays in memory until its result is known.
func (p *Publisher) leave(w *publication, cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.over {
		return w.err
	}
	reason := ErrUnsent
	if w.written {
		reason = ErrUnconfirmed
	}
	err := p.failed(reason, cause)
	for _, list := range []*[]*publication{&p.waiting, &p.isolated} {
		if i := slices.Index(*list, w); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			p.end(w, err)
			return err
		}
	}
	w.left = true
	p.counts.Unconfirmed++
	return err
}

// end settles a publication. The caller holds the lock.
func (p *Publisher) end(w *publication, err error) {
	w.over, w.err = true, err
	w.message = Message{}
	close(w.done)
	p.outstanding--
	<-p.slots
	_, returned := errors.AsType[*ReturnedError](err)
	switch {
	case w.left && err != nil: // it was counted when its caller left
	case err == nil:
		p.counts.Confirmed++
	case returned:
		p.counts.Returned++
	case errors.Is(err, ErrUnsent):
		p.counts.Unsent++
	case errors.Is(err, ErrUnconfirmed):
		p.counts.Unconfirmed++
	default:
		p.counts.Refused++
	}
	if p.outstanding == 0 {
		select {
		case p.empty <- struct{}{}:
		default:
		}
	}
}

func (p *Publisher) wake() {
	select {
	case p.work <- struct{}{}:
	default:
	}
}

// Close accepts no more messages, and waits until all are confirmed. If the context ends first,
// Publish returns [ErrUnsent] or [ErrUnconfirmed] for the remaining messages, and Close returns the
// context's error. After Close, no goroutine of the Publisher is left.
func (p *Publisher) Close(ctx context.Context) error {
	p.close()
	var err error
	for err == nil {
		p.mu.Lock()
		n := p.outstanding
		p.mu.Unlock()
		if n == 0 {
			break
		}
		select {
		case <-p.empty:
		case <-p.ended:
		case <-ctx.Done():
			err = fmt.Errorf("rabbitmq: closing the publisher with %d messages outstanding: %w", n, context.Cause(ctx))
		}
	}
	p.kill()
	<-p.ended
	return err
}

// Stats returns a snapshot.
func (p *Publisher) Stats() PublisherStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PublisherStats{Outstanding: p.outstanding, Connected: p.session != nil, PublisherCounts: p.counts}
	s.Blocked = s.Connected && p.session.blocked
	return s
}

// run keeps the Publisher connected until Close.
func (p *Publisher) run() {
	defer close(p.ended)
	defer p.abandon()
	for tries, turn := 0, 0; p.life.Err() == nil; turn++ {
		o, err := p.connect(turn)
		if err == nil {
			began := time.Now()
			err = o.serve()
			p.lost(o, err)
			// If the broker refused one message, the connection itself was good.
			if o.refusal != nil || time.Since(began) > lasting {
				tries = 0
			}
		}
		if p.life.Err() != nil {
			return
		}
		p.trouble(err)
		tries++
		if !sleep.For(p.life, consume.Backoff(tries, reconnectFirst, reconnectLongest)) {
			return
		}
	}
}

// abandon settles the remaining messages when the Publisher ends.
func (p *Publisher) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range [][]*publication{p.isolated, p.waiting} {
		for _, w := range list {
			if w.written {
				p.end(w, p.failed(ErrUnconfirmed, ErrClosed))
			} else {
				p.end(w, p.failed(ErrUnsent, ErrClosed))
			}
		}
	}
	p.isolated, p.waiting, p.over = nil, nil, true
}

// trouble keeps the error of a connection for those who wait, and tells the hook.
func (p *Publisher) trouble(err error) {
	p.mu.Lock()
	p.problem = err
	p.mu.Unlock()
	if h := p.config.Hooks.Error; h != nil && err != nil {
		h(err)
	}
}
