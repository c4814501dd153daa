package kafka

import (
	"context"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/attempt"
)

// run handles the record of an item, or produces its letter, and decides what comes next.
func (c *Consumer) run(it *item, permit flow.Permit) {
	if it.letter != nil {
		err := c.produce(it.of.ctx, it)
		c.lock()
		defer c.unlock()
		defer c.end(it)
		c.produced(it, err)
		return
	}
	began := time.Now()
	attempt.Call(it.of.ctx, permit, c.config.Timeout, func(ctx context.Context) error {
		return c.config.Handle(ctx, it.record)
	}, func(err error) {
		permit.Done(c.config.Outcome(err))
		took := time.Since(began)
		if h := c.config.Hooks.Handled; h != nil {
			h(it.record, err, took)
		}
		c.lock()
		defer c.unlock()
		defer c.end(it)
		c.dispatch.Freed()
		c.counts.Handled++
		if err != nil {
			c.counts.Failed++
		}
		switch {
		case err == nil:
			c.done(it)
		case it.of.ctx.Err() != nil:
			// The handler was told to stop, so this does not count as an attempt. The next owner of
			// the partition will handle the record.
		default:
			c.fail(it, err)
		}
	})
}

// done marks an item as done, starts the next item of its lane, and frees room. The caller holds
// the lock.
func (c *Consumer) done(it *item) {
	p := it.of
	next := p.finish(it)
	c.release(p)
	if next != nil && p.wants(next) {
		c.submit(next)
	}
}

// fail decides what happens after a failed attempt. The caller holds the lock.
func (c *Consumer) fail(it *item, err error) {
	it.tries++
	p, retry := it.of, &c.config.Retry
	switch tier := p.tier + 1; {
	case attempt.Hopeless(err):
		c.exhaust(it, err)
	case p.tier < 0 && it.tries <= retry.InPlace:
		c.again(it, err)
	case tier < len(retry.Tiers):
		to := retry.Tiers[tier]
		c.send(it, c.letter(it, to.Topic, err, time.Now().Add(to.Delay)), func() {
			c.counts.Delayed++
			if h := c.config.Hooks.Retried; h != nil {
				c.tell(func() { h(it.record, to.Topic, to.Delay, err) })
			}
		})
	default:
		c.exhaust(it, err)
	}
}

func (c *Consumer) exhaust(it *item, err error) {
	switch c.config.Exhausted {
	case Block:
		c.again(it, err)
	case Discard:
		c.counts.Discarded++
		if h := c.config.Hooks.Discarded; h != nil {
			c.tell(func() { h(it.record, err) })
		}
		c.done(it)
	default:
		c.send(it, c.letter(it, c.config.DeadLetter, err, time.Time{}), func() {
			c.counts.DeadLettered++
			if h := c.config.Hooks.DeadLettered; h != nil {
				c.tell(func() { h(it.record, err) })
			}
		})
	}
}

// again makes the item wait for its next try. It stays first in its lane, so that nothing overtakes
// it.
func (c *Consumer) again(it *item, err error) {
	wait := max(c.backoff(it.tries), attempt.Stagger(attempt.ComeAgain(err)))
	c.counts.Retried++
	if h := c.config.Hooks.Retried; h != nil {
		c.tell(func() { h(it.record, "", wait, err) })
	}
	c.wait(it, wait)
}

// wait submits an item after d, unless its partition is gone by then.
func (c *Consumer) wait(it *item, d time.Duration) {
	it.parked = true
	time.AfterFunc(d, func() {
		c.lock()
		defer c.unlock()
		if it.parked = false; !it.of.gone {
			c.submit(it)
		}
	})
}

// backoff returns the wait after the given number of failed tries.
func (c *Consumer) backoff(tries int) time.Duration {
	return attempt.Backoff(tries, c.config.Retry.Backoff, c.config.Retry.MaxBackoff)
}
