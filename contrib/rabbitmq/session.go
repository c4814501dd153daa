package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// session is one connection of a Consumer. The Consumer's lock guards what changes.
type session struct {
	c     *Consumer
	link  *link
	ch    *amqp.Channel
	probe *amqp.Channel // asks for the length of the queue
	name  string        // of its consumers, which are numbered

	ctx    context.Context // of handlers
	cancel context.CancelCauseFunc
	lost   context.CancelCauseFunc // ends the session
	ended  bool                    // by the Consumer's own end; of the goroutine of Run

	receiving sync.WaitGroup
	consumers int // how many there were
	prefetch  int
	held      map[*item]struct{} // what was delivered and is not settled
	running   int
	parked    int           // wait to be tried again in place
	letters   int           // of items that are to be published
	over      bool          // nothing begins any more but letters
	gone      bool          // lost, or over and given back
	idle      chan struct{} // closed when it is over and nothing runs
	settles   []settlement
	last      bool          // no more of them come
	more      chan struct{} // told of more
	settled   chan struct{} // closed when all were told, or it is of no use
}

// settlement is the fate of a delivery.
type settlement struct {
	number uint64
	fate   fate
}

type fate uint8

const (
	acknowledge fate = iota
	// putBack is nack: the message may be delivered again, and nothing speaks against it.
	putBack
	// sendBack is reject with requeue: the message comes again, and its count of
	// deliveries grows.
	sendBack
	// discard is reject without requeue: it goes to where the queue says, or is dropped.
	discard
)

// settlers is how a fate is told to the broker.
var settlers = [...]func(ch *amqp.Channel, number uint64) error{
	acknowledge: func(ch *amqp.Channel, n uint64) error { return ch.Ack(n, false) },
	putBack:     func(ch *amqp.Channel, n uint64) error { return ch.Nack(n, false, true) },
	sendBack:    func(ch *amqp.Channel, n uint64) error { return ch.Reject(n, true) },
	discard:     func(ch *amqp.Channel, n uint64) error { return ch.Reject(n, false) },
}

// connect makes a connection that is ready to consume.
func (c *Consumer) connect(ctx context.Context, turn int) (*session, error) {
	l, err := c.config.Broker.dial(ctx, turn)
	if err != nil {
		return nil, err
	}
	s := &session{
		c: c, link: l, name: fmt.Sprintf("headgate-%d", turn),
		held: make(map[*item]struct{}), idle: make(chan struct{}),
		more: make(chan struct{}, 1), settled: make(chan struct{}),
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

// serve consumes until the connection is over or the context ends.
func (s *session) serve(ctx context.Context) error {
	c := s.c
	life, lost := context.WithCancelCause(context.Background())
	s.lost = lost
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	c.lock()
	c.session = s
	c.counts.Connects++
	c.window, c.since, c.changed = window{}, time.Now(), time.Now()
	c.unlock()

	closed := s.ch.NotifyClose(make(chan *amqp.Error, 1))
	cancelled := s.ch.NotifyCancel(make(chan string, 1))
	var all sync.WaitGroup
	all.Go(func() { s.watch(closed, cancelled) })
	all.Go(func() { s.settler(life) })
	all.Go(func() { // without the socket, whatever waits for the broker returns
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

// watch takes what the broker says of the channel.
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

// tag is the name of a consumer of this session.
func (s *session) tag(number int) string { return fmt.Sprintf("%s-%d", s.name, number) }

// subscribe begins to consume with a prefetch. What an earlier subscription was sent stays
// where it is; a prefetch cannot be changed otherwise, since the one that all consumers of a
// channel share does not work for quorum queues.
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
	c.lock()
	defer c.unlock()
	s.prefetch = prefetch
	if number > 0 {
		c.counts.Tuned++
	}
	return nil
}

func (s *session) unsubscribe(ctx context.Context, number int) error {
	return s.link.ask(ctx, "cancelling a consumer", func() error { return s.ch.Cancel(s.tag(number), false) })
}

// settler tells the broker the fate of deliveries, in the order in which they were decided.
func (s *session) settler(life context.Context) {
	defer close(s.settled)
	for {
		s.c.lock()
		batch, last := s.settles, s.last
		s.settles = nil
		s.c.unlock()
		for _, one := range batch {
			if err := settlers[one.fate](s.ch, one.number); err != nil {
				s.lost(fmt.Errorf("rabbitmq: settling a message: %w", err))
				return
			}
		}
		if last {
			return
		}
		select {
		case <-s.more:
		case <-life.Done():
			return
		}
	}
}

// tune looks at the queue, at what has been waiting for too long, and at the prefetch, until
// it is to stop. What it asks of the broker goes on until life ends.
func (s *session) tune(stop, life context.Context) {
	c := s.c
	for sleep(stop, c.config.Prefetch.Every) {
		began := time.Now()
		var q amqp.Queue
		err := s.link.ask(life, fmt.Sprintf("asking for the length of the queue %q", c.config.Queue.Name), func() (err error) {
			q, err = s.probe.QueueDeclarePassive(c.config.Queue.Name, true, false, false, false, nil)
			return err
		})
		if err != nil {
			s.lost(err) // unless the session is over anyway
			return
		}
		before := s.prefetch // only this goroutine changes it
		c.lock()
		now := time.Now()
		c.ready, c.trip = q.Messages, now.Sub(began)
		s.letGo(now)
		next := c.tuned(now)
		c.unlock()
		if next == before {
			continue
		}
		if err := s.subscribe(life, next); err != nil {
			s.lost(err)
			return
		}
	}
}

// tuned ends the window and returns the prefetch for the next one. The caller holds the lock.
func (c *Consumer) tuned(now time.Time) int {
	c.elapse()
	w := c.window
	w.length, w.roundTrip, w.ready = now.Sub(c.since), c.trip, c.ready
	if c.sized > 0 {
		w.size = c.sizes / int64(c.sized)
	}
	c.window, c.since, c.sized, c.sizes = window{}, now, 0, 0
	return c.tuner.next(w)
}

// letGo gives back what has been waiting for too long. The caller holds the lock.
func (s *session) letGo(now time.Time) {
	for it := range s.held {
		if !it.running && it.letter == nil && now.Sub(it.since) > s.c.config.Hold {
			s.c.giveBack(it)
		}
	}
	s.c.dispatch.Prune()
}

// finish ends a session as the Consumer ends: in order.
func (s *session) finish(life context.Context) error {
	c := s.c
	c.lock()
	s.over = true
	c.unlock()
	if err := s.unsubscribe(life, s.consumers-1); err != nil {
		return nil //nolint:nilerr // there is no connection to end: everything comes again
	}
	s.receiving.Wait() // what was sent meanwhile is put back
	c.lock()
	for it := range s.held {
		if !it.running && it.letter == nil {
			c.giveBack(it)
		}
	}
	c.dispatch.Prune()
	s.rest()
	c.unlock()
	s.wait(life, c.config.Drain)
	s.cancel(context.Canceled)
	s.wait(life, time.Second)

	c.lock()
	left := s.running
	for it := range s.held {
		if it.running {
			c.counts.Abandoned++
		}
		// It was begun, or its letter could not be written: it may be its fault.
		c.settle(it, sendBack)
	}
	s.gone, s.last = true, true
	c.unlock()
	s.wake()
	select {
	case <-s.settled:
		// The broker has heard all settlements when it answers this. Otherwise what it has
		// not heard comes again.
		_ = s.link.ask(life, "closing a channel", s.ch.Close)
	case <-time.After(goodbye):
	case <-life.Done():
	}
	if left > 0 {
		return fmt.Errorf("%w: %d messages within %v", ErrAbandoned, left, c.config.Drain)
	}
	return nil
}

// wait waits until nothing runs and nothing is published, for so long at most.
func (s *session) wait(life context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.idle:
	case <-timer.C:
	case <-life.Done():
	}
}

// rest closes idle if the session is over and nothing runs. The caller holds the lock.
func (s *session) rest() {
	if !s.over || s.running > 0 || s.letters > 0 {
		return
	}
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}

// drop forgets what the session holds: the broker delivers it again.
func (s *session) drop() {
	c := s.c
	c.lock()
	defer c.unlock()
	s.gone = true
	s.cancel(ErrLost)
	for it := range s.held {
		c.counts.Lost++
		c.forget(it)
	}
	c.dispatch.Prune()
	if c.session == s {
		c.session = nil
	}
}

// wake tells the settler of something to do.
func (s *session) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}
