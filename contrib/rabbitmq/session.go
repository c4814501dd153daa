package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate/internal/sleep"
)

// session is one connection of a Consumer. The Consumer's lock guards the fields that change.
type session struct {
	c     *Consumer
	link  *link
	ch    *amqp.Channel
	probe *amqp.Channel // asks for the length of the queue
	name  string        // the prefix of the names of its consumers, which are numbered

	ctx    context.Context // of handlers
	cancel context.CancelCauseFunc
	lost   context.CancelCauseFunc // ends the session
	ended  bool                    // the Consumer ends; only the goroutine of Run uses it

	receiving sync.WaitGroup
	consumers int // how many consumers there have been
	prefetch  int
	held      map[*item]struct{} // deliveries that are not settled
	running   int
	over      bool           // nothing but letters may begin any more
	gone      bool           // the connection is lost, or over is set and all items were given back
	idle      chan struct{}  // closed when it is over and nothing runs
	settling  sync.WaitGroup // settlements that are being sent
}

// fate says how a delivery is settled.
type fate uint8

const (
	acknowledge fate = iota
	// putBack means nack: the message may be delivered again, and has not failed.
	putBack
	// sendBack means reject with requeue: the message is delivered again, and its count of
	// deliveries grows.
	sendBack
	// discard means reject without requeue: the message goes where the queue says, or is dropped.
	discard
)

// settlers are the calls to the broker for each fate.
var settlers = [...]func(ch *amqp.Channel, number uint64) error{
	acknowledge: func(ch *amqp.Channel, n uint64) error { return ch.Ack(n, false) },
	putBack:     func(ch *amqp.Channel, n uint64) error { return ch.Nack(n, false, true) },
	sendBack:    func(ch *amqp.Channel, n uint64) error { return ch.Reject(n, true) },
	discard:     func(ch *amqp.Channel, n uint64) error { return ch.Reject(n, false) },
}

// connect returns a connection that is ready for consuming.
func (c *Consumer) connect(ctx context.Context, turn int) (*session, error) {
	l, err := c.config.Broker.dial(ctx, turn)
	if err != nil {
		return nil, err
	}
	s := &session{
		c: c, link: l, name: fmt.Sprintf("headgate-%d", turn),
		held: make(map[*item]struct{}), idle: make(chan struct{}),
	}
	err = c.topology.apply(ctx, l)
	for _, ch := range []**amqp.Channel{&s.ch, &s.probe} {
		if err == nil {
			*ch, err = l.channel(ctx)
		}
	}
	if err != nil {
		l.over()
		return nil, err
	}
	return s, nil
}

// serve consumes until the connection is lost or the context ends.
func (s *session) serve(ctx context.Context) error {
	c := s.c
	life, lost := context.WithCancelCause(context.Background())
	s.lost = lost
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	c.engine.Lock()
	c.session = s
	c.counts.Connects++
	c.measure(time.Now())
	c.engine.Unlock()

	closed := s.ch.NotifyClose(make(chan *amqp.Error, 1))
	cancelled := s.ch.NotifyCancel(make(chan string, 1))
	var all sync.WaitGroup
	all.Go(func() { s.watch(closed, cancelled) })
	all.Go(func() { // closing the socket makes all calls to the broker return
		<-life.Done()
		s.link.over()
	})
	if err := s.subscribe(life, c.tuner.now); err != nil {
		lost(err)
	}
	tuned, stop := context.WithCancel(life)
	var tuning sync.WaitGroup
	tuning.Go(func() { s.tune(tuned, life) })
	select {
	case <-ctx.Done():
	case <-life.Done():
	}
	stop()
	tuning.Wait()
	var err error
	if life.Err() == nil {
		err = s.finish(life)
		s.ended = true
	}
	lost(errors.New("rabbitmq: the session has ended"))
	all.Wait()
	s.receiving.Wait()
	s.drop()
	if s.ended {
		return err
	}
	return context.Cause(life)
}

// watch handles the broker's notices about the channel.
func (s *session) watch(closed chan *amqp.Error, cancelled chan string) {
	for closed != nil || cancelled != nil {
		select {
		case reason, ok := <-closed:
			if !ok {
				closed = nil
				s.lost(errors.New("rabbitmq: the connection of the consumer has ended"))
				break
			}
			s.lost(fmt.Errorf("rabbitmq: the channel of the consumer was closed: %w", reason))
		case tag, ok := <-cancelled:
			if !ok {
				cancelled = nil
				break
			}
			s.lost(fmt.Errorf("rabbitmq: the broker has cancelled the consumer %q: its queue was deleted, or its node has gone", tag))
		}
	}
}

// tag returns the name of a consumer of this session.
func (s *session) tag(number int) string { return fmt.Sprintf("%s-%d", s.name, number) }

// subscribe makes a new consumer with the given prefetch, and keeps the deliveries of the earlier
// one. There is no other way to change a prefetch, because one that all consumers of a channel
// share does not work for quorum queues.
func (s *session) subscribe(ctx context.Context, prefetch int) error {
	c := s.c
	number := s.consumers
	s.consumers++
	var deliveries <-chan amqp.Delivery
	err := s.link.ask(ctx, fmt.Sprintf("consuming the queue %q", c.config.Queue.Name), func() (err error) {
		if err = s.ch.Qos(prefetch, 0, false); err == nil {
			deliveries, err = s.ch.Consume(c.config.Queue.Name, s.tag(number), false, false, false, false, nil)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.receiving.Go(func() {
		for d := range deliveries {
			c.received(s, d)
		}
	})
	if number > 0 {
		if err := s.unsubscribe(ctx, number-1); err != nil {
			return err
		}
	}
	c.engine.Lock()
	defer c.engine.Unlock()
	s.prefetch = prefetch
	if number > 0 {
		c.counts.Tuned++
	}
	return nil
}

func (s *session) unsubscribe(ctx context.Context, number int) error {
	return s.link.ask(ctx, "cancelling a consumer", func() error { return s.ch.Cancel(s.tag(number), false) })
}

// settle makes the engine's Unlock tell the broker how a delivery is settled. The caller holds the
// lock.
func (s *session) settle(number uint64, fate fate) {
	s.settling.Add(1)
	s.c.engine.Tell(func() {
		defer s.settling.Done()
		if err := settlers[fate](s.ch, number); err != nil {
			s.lost(fmt.Errorf("rabbitmq: settling a message: %w", err))
		}
	})
}

// tune regularly checks the queue's length, messages that have waited for too long, and the
// prefetch, until stop ends. Its calls to the broker may continue until life ends.
func (s *session) tune(stop, life context.Context) {
	c := s.c
	for sleep.For(stop, c.config.Prefetch.Every) {
		began := time.Now()
		var q amqp.Queue
		err := s.link.ask(life, fmt.Sprintf("asking for the length of the queue %q", c.config.Queue.Name), func() (err error) {
			q, err = s.probe.QueueDeclarePassive(c.config.Queue.Name, true, false, false, false, nil)
			return err
		})
		if err != nil {
			s.lost(err) // no effect if the session has ended already
			return
		}
		before := s.prefetch // only this goroutine changes it
		c.engine.Lock()
		now := time.Now()
		c.ready, c.trip = q.Messages, now.Sub(began)
		s.letGo(now)
		next := c.tuner.next(c.measure(now))
		c.engine.Unlock()
		if next == before {
			continue
		}
		if err := s.subscribe(life, next); err != nil {
			s.lost(err)
			return
		}
	}
}

// measure ends a window and begins the next one. The caller holds the lock.
func (c *Consumer) measure(now time.Time) window {
	w := window{length: now.Sub(c.since), done: c.done, roundTrip: c.trip, ready: c.ready}
	w.busy, w.waiting = c.engine.Load()
	if c.sized > 0 {
		w.size = c.sizes / int64(c.sized)
	}
	c.since, c.done, c.sized, c.sizes = now, 0, 0, 0
	return w
}

// letGo gives back messages that have waited for too long. The caller holds the lock.
func (s *session) letGo(now time.Time) {
	for it := range s.held {
		if !it.running && !it.IsLetter() && now.Sub(it.since) > s.c.config.Hold {
			s.c.giveBack(it)
		}
	}
	s.c.engine.Prune()
}

// finish ends a session in order when the Consumer ends.
func (s *session) finish(life context.Context) error {
	c := s.c
	c.engine.Lock()
	s.over = true
	c.engine.Unlock()
	if err := s.unsubscribe(life, s.consumers-1); err != nil {
		return nil //nolint:nilerr // there is no connection to end: everything comes again
	}
	s.receiving.Wait() // deliveries that arrived meanwhile are put back
	c.engine.Lock()
	for it := range s.held {
		if !it.running && !it.IsLetter() {
			c.giveBack(it)
		}
	}
	c.engine.Prune()
	s.rest()
	c.engine.Unlock()
	s.wait(life, c.engine.Config.Drain)
	s.cancel(context.Canceled)
	s.wait(life, time.Second)

	c.engine.Lock()
	left := s.running
	for it := range s.held {
		if it.running {
			c.counts.Abandoned++
		}
		// Its handler has begun, or its letter could not be published, so the message itself may be
		// the cause.
		c.decide(it, sendBack)
	}
	s.gone = true
	// When the broker answers this, it has received all settlements. Messages without a settlement
	// are delivered again.
	_ = s.link.ask(life, "closing a channel", func() error {
		c.engine.Unlock() // sends settlements
		s.settling.Wait()
		return s.ch.Close()
	})
	if left > 0 {
		return fmt.Errorf("%w: %d messages within %v", ErrAbandoned, left, c.engine.Config.Drain)
	}
	return nil
}

// wait waits until nothing runs and nothing is published, but for at most d.
func (s *session) wait(life context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.idle:
	case <-timer.C:
	case <-life.Done():
	}
}

// rest closes idle if the session is over, nothing runs, and no letter is to be published. The
// caller holds the lock.
func (s *session) rest() {
	if !s.over || s.running > 0 {
		return
	}
	for it := range s.held {
		if it.IsLetter() {
			return
		}
	}
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}

// drop forgets all messages that the session holds. The broker delivers them again.
func (s *session) drop() {
	c := s.c
	c.engine.Lock()
	defer c.engine.Unlock()
	s.gone = true
	s.cancel(ErrLost)
	for it := range s.held {
		c.counts.Lost++
		c.forget(it)
	}
	c.engine.Prune()
	if c.session == s {
		c.session = nil
	}
}
