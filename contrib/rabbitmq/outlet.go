package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// outlet is one connection of a Publisher. The Publisher's lock guards the fields that change.
type outlet struct {
	p    *Publisher
	link *link
	ch   *amqp.Channel

	sent    map[uint64]*publication // by the numbers of their confirms
	number  uint64                  // the last number used
	blocked bool                    // the broker has blocked the connection
	paused  bool                    // the broker has paused the channel
	free    time.Time               // since when it has been neither blocked nor paused
	alone   bool                    // the last message must be confirmed before the next one is sent
	refusal *amqp.Error             // why the broker closed the channel because of a message

	confirms chan amqp.Confirmation
	returns  chan amqp.Return
	blocks   chan amqp.Blocking
	flows    chan bool
	gone     chan *amqp.Error // receives when the channel, and with it the connection, is closed
}

// connect returns a connection that is ready for publishing.
func (p *Publisher) connect(turn int) (*outlet, error) {
	l, err := p.config.Broker.dial(p.life, turn)
	if err != nil {
		return nil, err
	}
	o := &outlet{
		p: p, link: l, sent: make(map[uint64]*publication),
		// The client blocks until its notices are read. So listen reads all of them until they are
		// closed, and no lock is held during a write.
		confirms: make(chan amqp.Confirmation, 64),
		returns:  make(chan amqp.Return, 64),
		blocks:   make(chan amqp.Blocking, 1),
		flows:    make(chan bool, 1),
		gone:     make(chan *amqp.Error, 1),
	}
	if err := p.config.Topology.apply(p.life, l); err != nil {
		l.over()
		return nil, err
	}
	if o.ch, err = l.channel(p.life); err == nil {
		err = l.ask(p.life, "asking for confirms", func() error { return o.ch.Confirm(false) })
	}
	if err != nil {
		l.over()
		return nil, err
	}
	l.NotifyBlocked(o.blocks)
	o.ch.NotifyFlow(o.flows)
	o.ch.NotifyReturn(o.returns)
	o.ch.NotifyPublish(o.confirms)
	o.ch.NotifyClose(o.gone)
	p.mu.Lock()
	p.session, p.problem = o, nil
	p.counts.Connects++
	p.mu.Unlock()
	return o, nil
}

// serve writes and listens until the connection or the Publisher is closed.
func (o *outlet) serve() error {
	ctx, lost := context.WithCancelCause(o.p.life)
	var all sync.WaitGroup
	all.Go(func() { o.listen(lost) })
	all.Go(func() {
		// A write may block for as long as the broker is blocked. Closing the socket makes it
		// return.
		<-ctx.Done()
		o.link.over()
	})
	lost(o.write(ctx))
	all.Wait()
	return context.Cause(ctx)
}

// write sends waiting messages in order, whenever the broker accepts them.
func (o *outlet) write(ctx context.Context) error {
	for {
		m, ok := o.next()
		if !ok {
			select {
			case <-o.p.work:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := o.ch.PublishWithContext(ctx, m.Exchange, m.Key, !m.Optional, false, m.Publishing); err != nil {
			return fmt.Errorf("rabbitmq: publishing: %w", err)
		}
	}
}

// next returns the message to write now. It returns false if there is none.
func (o *outlet) next() (Message, bool) {
	p := o.p
	p.mu.Lock()
	defer p.mu.Unlock()
	var w *publication
	switch {
	case o.blocked || o.paused:
		return Message{}, false
	case len(p.isolated) > 0 && len(o.sent) > 0:
		return Message{}, false // one at a time
	case len(p.isolated) > 0:
		o.alone = true
		w, p.isolated = p.isolated[0], p.isolated[1:]
	case o.alone && len(o.sent) > 0:
		return Message{}, false // the last of the isolated ones is not confirmed yet
	case len(p.waiting) > 0:
		o.alone = false
		w = p.waiting[0]
		p.waiting[0] = nil
		if p.waiting = p.waiting[1:]; len(p.waiting) == 0 {
			p.waiting = nil // frees an array that may have grown large
		}
	default:
		return Message{}, false
	}
	if w.written {
		p.counts.Resent++
	}
	w.written, w.at, w.returned = true, time.Now(), nil
	o.number++
	o.sent[o.number] = w
	return w.message, true
}

// listen handles the broker's notices until the connection is closed.
func (o *outlet) listen(lost context.CancelCauseFunc) {
	defer lost(errors.New("rabbitmq: the connection of the publisher has ended"))
	confirms, returns, blocks, flows, gone := o.confirms, o.returns, o.blocks, o.flows, o.gone
	ticks := time.NewTicker(o.p.config.ConfirmTimeout / 4)
	defer ticks.Stop()
	for confirms != nil || returns != nil || blocks != nil || flows != nil || gone != nil {
		select {
		case c, ok := <-confirms:
			if !ok {
				confirms = nil
				break
			}
			// A return comes before its confirm, so all returns that concern this confirm are here.
			for len(returns) > 0 {
				o.returned(<-returns)
			}
			o.confirmed(c)
		case r, ok := <-returns:
			if !ok {
				returns = nil
				break
			}
			o.returned(r)
		case b, ok := <-blocks:
			if !ok {
				blocks = nil
				break
			}
			o.block(b)
		case now := <-ticks.C:
			if o.silent(now) {
				lost(fmt.Errorf("rabbitmq: the broker has not confirmed a message within %v", o.p.config.ConfirmTimeout))
			}
		case active, ok := <-flows:
			if !ok {
				flows = nil
				break
			}
			o.p.mu.Lock()
			o.paused, o.free = !active, time.Now()
			o.p.mu.Unlock()
			o.p.wake()
		case reason, ok := <-gone:
			if !ok {
				gone = nil
				break
			}
			if ofOneMessage(reason) {
				o.p.mu.Lock()
				o.refusal = reason
				o.p.mu.Unlock()
			}
			lost(fmt.Errorf("rabbitmq: the channel of the publisher was closed: %w", reason))
		}
	}
}

// ofOneMessage reports whether the broker has closed the channel because of one message. For other
// reasons, it closes the whole connection.
func ofOneMessage(reason *amqp.Error) bool {
	switch reason.Code {
	case amqp.ContentTooLarge, amqp.AccessRefused, amqp.NotFound, amqp.ResourceLocked, amqp.PreconditionFailed:
		return true
	}
	return false
}

// silent reports whether the broker has not confirmed a message for too long, although it was
// neither blocked nor paused.
func (o *outlet) silent(now time.Time) bool {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	if o.blocked || o.paused {
		return false
	}
	for _, w := range o.sent {
		since := w.at
		if o.free.After(since) {
			since = o.free
		}
		if now.Sub(since) > o.p.config.ConfirmTimeout {
			return true
		}
	}
	return false
}

// confirmed settles the messages of a confirm.
func (o *outlet) confirmed(c amqp.Confirmation) {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	w := o.sent[c.DeliveryTag]
	if w == nil {
		return
	}
	delete(o.sent, c.DeliveryTag)
	switch {
	case w.returned != nil:
		o.p.end(w, w.returned)
	case c.Ack:
		o.p.end(w, nil)
	default:
		o.p.end(w, ErrRefused)
	}
	if o.alone {
		o.p.wake()
	}
}

// returned records that no queue gets a message. The broker identifies it only by its content.
func (o *outlet) returned(r amqp.Return) {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	for _, w := range o.sent {
		if m := &w.message; m.MessageId == r.MessageId && m.Exchange == r.Exchange && m.Key == r.RoutingKey && w.returned == nil {
			w.returned = &ReturnedError{Exchange: r.Exchange, Key: r.RoutingKey, Code: int(r.ReplyCode), Reason: r.ReplyText}
			return
		}
	}
}

// block stops writing while the broker is short of resources, and continues it afterwards.
func (o *outlet) block(b amqp.Blocking) {
	o.p.mu.Lock()
	was := o.blocked
	o.blocked, o.free = b.Active, time.Now()
	if b.Active && !was {
		o.p.counts.Blocks++
	}
	o.p.mu.Unlock()
	hooks := &o.p.config.Hooks
	switch {
	case b.Active && !was && hooks.Blocked != nil:
		hooks.Blocked(b.Reason)
	case !b.Active && was && hooks.Unblocked != nil:
		hooks.Unblocked()
	}
	o.p.wake()
}

// lost decides what happens to messages that were sent over a connection that has ended.
func (p *Publisher) lost(o *outlet, err error) {
	o.block(amqp.Blocking{}) // calls Hooks.Unblocked if the connection was blocked
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = nil
	var left []*publication
	for _, n := range slices.Sorted(maps.Keys(o.sent)) {
		w := o.sent[n]
		switch {
		case o.refusal != nil && len(o.sent) == 1:
			p.end(w, &PublishError{Cause: o.refusal})
		case w.left || p.config.AtMostOnce:
			p.end(w, fmt.Errorf("%w: %w", ErrUnconfirmed, err))
		default:
			left = append(left, w)
		}
	}
	if o.refusal != nil {
		p.isolated = append(left, p.isolated...)
	} else {
		p.waiting = append(left, p.waiting...)
	}
}
