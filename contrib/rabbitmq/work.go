package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/attempt"
)

// run handles the message of an item, or publishes its letter, and decides what comes next.
func (c *Consumer) run(it *item, permit flow.Permit) {
	if it.letter != nil {
		err := c.letters.Publish(it.of.ctx, *it.letter)
		c.lock()
		defer c.unlock()
		defer c.end(it)
		c.published(it, err)
		return
	}
	began := time.Now()
	attempt.Call(it.of.ctx, permit, c.config.Timeout, func(ctx context.Context) error {
		return c.config.Handle(ctx, it.delivery)
	}, func(err error) {
		permit.Done(c.config.Outcome(err))
		took := time.Since(began)
		if h := c.config.Hooks.Handled; h != nil {
			h(it.delivery, err, took)
		}
		c.lock()
		defer c.unlock()
		defer c.end(it)
		c.dispatch.Freed()
		c.counts.Handled++
		if err != nil {
			c.counts.Failed++
		}
		if it.settled {
			return // the result of the handler comes too late
		}
		c.window.done++
		switch {
		case err == nil:
			c.settle(it, acknowledge)
		case it.of.ctx.Err() != nil:
			// The handler was told to stop. The next consumer that gets the message will handle it.
			c.settle(it, sendBack)
			c.counts.Requeued++
		default:
			c.fail(it, err)
		}
	})
}

// settle decides how a delivery is settled. The caller holds the lock.
func (c *Consumer) settle(it *item, fate fate) {
	if it.settled {
		return
	}
	s := it.of
	if !s.gone {
		s.settles = append(s.settles, settlement{it.delivery.DeliveryTag, fate})
		s.wake()
	}
	c.forget(it)
}

// forget frees the room of an item. The caller holds the lock.
func (c *Consumer) forget(it *item) {
	c.elapse()
	it.settled = true
	delete(it.of.held, it)
	c.held--
	c.bytes -= int64(len(it.delivery.Body))
	if it.letter != nil {
		it.of.letters--
	}
	it.unpark()
}

// giveBack returns a message that is not done to the queue. The caller holds the lock.
func (c *Consumer) giveBack(it *item) {
	c.counts.Requeued++
	if it.tries > 0 {
		c.settle(it, sendBack)
	} else {
		c.settle(it, putBack)
	}
}

// fail decides what happens after a failed attempt. The caller holds the lock.
func (c *Consumer) fail(it *item, err error) {
	it.tries++
	retry := &c.config.Retry
	switch tier := it.origin.Tier; {
	case attempt.Hopeless(err):
		c.exhaust(it, err)
	case tier == 0 && it.tries <= retry.InPlace:
		c.again(it, err)
	case tier < len(retry.Tiers):
		to := retry.Tiers[tier]
		c.send(it, c.letter(it, to.Queue, err, tier+1, time.Now().Add(to.Delay)), func() {
			c.counts.Delayed++
			if h := c.config.Hooks.Retried; h != nil {
				c.tell(func() { h(it.delivery, to.Queue, to.Delay, err) })
			}
		})
	default:
		c.exhaust(it, err)
	}
}

// exhaust handles a message whose attempts have all failed, as Config.Exhausted says. The caller
// holds the lock.
func (c *Consumer) exhaust(it *item, err error) {
	switch c.config.Exhausted {
	case Block:
		c.again(it, err)
	case Reject:
		c.counts.Rejected++
		c.gaveUp(it, err)
		c.settle(it, discard)
	case Discard:
		c.counts.Discarded++
		c.gaveUp(it, err)
		c.settle(it, acknowledge)
	default:
		c.send(it, c.letter(it, c.config.DeadLetter.Name, err, 0, time.Time{}), func() {
			c.counts.DeadLettered++
			if h := c.config.Hooks.DeadLettered; h != nil {
				c.tell(func() { h(it.delivery, err) })
			}
		})
	}
}

func (c *Consumer) gaveUp(it *item, err error) {
	if h := c.config.Hooks.Discarded; h != nil {
		c.tell(func() { h(it.delivery, err) })
	}
}

// again makes the item wait for its next try in place. The caller holds the lock.
func (c *Consumer) again(it *item, err error) {
	wait := max(attempt.Backoff(it.tries, c.config.Retry.Backoff, c.config.Retry.MaxBackoff), attempt.Stagger(attempt.ComeAgain(err)))
	c.counts.Retried++
	if h := c.config.Hooks.Retried; h != nil {
		c.tell(func() { h(it.delivery, "", wait, err) })
	}
	c.wait(it, wait)
}

// wait submits an item after d, unless it is settled by then. The caller holds the lock.
func (c *Consumer) wait(it *item, d time.Duration) {
	if it.of.over && it.letter == nil {
		c.giveBack(it) // the session ends before that
		return
	}
	it.parked = true
	it.of.parked++
	time.AfterFunc(d, func() {
		c.lock()
		defer c.unlock()
		if it.settled {
			return
		}
		it.unpark()
		c.submit(it)
	})
}

// unpark records that an item no longer waits for its next try. The caller holds the lock.
func (it *item) unpark() {
	if it.parked {
		it.parked = false
		it.of.parked--
	}
}

// send publishes a letter in place of the item, which is then done. The caller holds the lock.
func (c *Consumer) send(it *item, letter Message, written func()) {
	it.letter, it.written, it.tries = &letter, written, 0
	it.of.letters++
	c.submit(it)
}

// published handles the result of publishing a letter. Until that has succeeded, the message is not
// acknowledged and publishing is tried again: no message is dropped because its letter cannot be
// published. The caller holds the lock.
func (c *Consumer) published(it *item, err error) {
	switch {
	case it.settled || it.of.ctx.Err() != nil && err != nil:
		return
	case err == nil:
		it.written()
		c.settle(it, acknowledge)
		return
	}
	if _, ok := errors.AsType[*ReturnedError](err); ok {
		// The queue was deleted. A new session declares it again, or reports that it is missing.
		it.of.lost(err)
		return
	}
	it.tries++
	c.trouble(fmt.Errorf("rabbitmq: publishing a letter to %q: %w", it.letter.Key, err))
	c.wait(it, attempt.Backoff(it.tries, c.config.Retry.Backoff, c.config.Retry.MaxBackoff))
}
