package kafka

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

// valve holds the records that ask the gate with the same key, so that one refusal
// holds them all back, and the others are asked about meanwhile. The Consumer's lock
// guards it.
type valve struct {
	key   string
	items queue[*item]
	// asking is how many are asking the gate now, at most width: after a refusal one
	// record tries, and each that is let in doubles the width.
	asking, width int
	// closed means that the gate has refused, until the timer opens the valve. busy means
	// that a record which ends may open it as well, and waits that it is among those from
	// which that chooses.
	closed, busy, waits bool
	timer               *time.Timer
	// listed means that the valve is among those to take from.
	listed bool
}

// pauses at the gate when it cannot say when to come again, and when it fails.
const (
	askAgain      = 10 * time.Millisecond
	askAfterError = 250 * time.Millisecond
)

// submit sends an item on its way: it asks the gate as soon as its valve is open and a
// worker is free. The caller holds the lock.
func (c *Consumer) submit(it *item) {
	v := &c.letters // which do not ask
	if it.letter == nil {
		if early := c.until(it.of, it.record, time.Now()); early > 0 {
			c.wait(it, early)
			return
		}
		it.request = c.config.Request(it.record)
		if v = c.valves[it.request.Key]; v == nil {
			v = &valve{key: it.request.Key, width: 1}
			c.valves[v.key] = v
		}
	}
	v.items.push(it)
	c.list(v)
}

// list puts a valve among those to take from if there is something to take, and sees to
// it that somebody takes it.
func (c *Consumer) list(v *valve) {
	if !v.listed && !v.closed && v.items.len() > 0 && v.asking < v.width {
		v.listed = true
		c.open.push(v)
	}
	if v.items.len() == 0 && v.asking == 0 && !v.closed && c.valves[v.key] == v {
		delete(c.valves, v.key)
	}
	c.hire()
}

// hire starts a worker if there is work for one more.
func (c *Consumer) hire() {
	if c.open.len() > 0 && c.workers < c.config.Workers {
		c.workers++
		go c.work()
	}
}

// take returns the next item and its valve, or nil: the valves in turn, and each in the
// order of its items. The caller holds the lock.
func (c *Consumer) take() (*valve, *item) {
	for c.open.len() > 0 {
		v := c.open.pop()
		v.listed = false
		var it *item
		for v.items.len() > 0 && it == nil {
			if first := v.items.pop(); first.of.wants(first) {
				it = first
			}
		}
		if it == nil {
			c.list(v)
			continue
		}
		v.asking++
		c.begin(it)
		c.list(v)
		return v, it
	}
	return nil, nil
}

// begin counts an item as running, and end no more. The caller holds the lock.
func (c *Consumer) begin(it *item) {
	p := it.of
	p.running++
	p.begun = max(p.begun, it.record.Offset)
	c.running++
}

func (c *Consumer) end(it *item) {
	p := it.of
	p.running--
	c.running--
	p.settle()
}

// work runs items until there are none. A handler that ends its goroutine ends a worker,
// and another takes its place.
func (c *Consumer) work() {
	defer func() {
		c.lock()
		defer c.unlock()
		c.workers--
		c.hire()
	}()
	for {
		c.lock()
		v, it := c.take()
		c.unlock()
		if it == nil {
			return
		}
		c.pass(v, it)
	}
}

// pass asks the gate for an item and runs it.
func (c *Consumer) pass(v *valve, it *item) {
	var permit flow.Permit
	var err error
	if c.config.Gate != nil && it.letter == nil {
		permit, err = c.config.Gate.TryAcquire(it.of.ctx, it.request)
	}
	c.lock()
	v.asking--
	if err == nil {
		v.width = min(2*v.width, c.config.Workers)
		c.list(v)
		c.unlock()
		c.run(it, permit)
		return
	}
	defer c.unlock()
	defer c.end(it)
	c.refused(v, it, err)
}

// refused closes the valve, and puts the item back to where it was, unless it can never
// pass. The caller holds the lock.
func (c *Consumer) refused(v *valve, it *item, err error) {
	c.counts.Refused++
	after, busy := askAfterError, false
	rejection, ok := errors.AsType[*flow.Rejection](err)
	switch {
	case !it.of.wants(it):
		c.list(v)
		return
	case ok && rejection.RetryAfter == headgate.Never, errors.Is(err, headgate.ErrInvalid):
		c.fail(it, Permanent(err))
		c.list(v)
		return
	case ok:
		after = max(rejection.RetryAfter, time.Millisecond)
		if rejection.RetryAfter <= 0 {
			after = askAgain
		}
		busy = rejection.Reason != flow.ReasonRate
	case it.of.ctx.Err() == nil:
		c.trouble(err)
	}
	v.items.unpop(it)
	v.width = 1
	c.shut(v, later(after), busy)
}

// shut closes a valve for a while. One that is closed stays so for as long as it was to be.
func (c *Consumer) shut(v *valve, d time.Duration, busy bool) {
	if v.closed {
		return
	}
	v.closed, v.busy = true, busy
	if busy && !v.waits {
		v.waits = true
		c.busy.push(v)
	}
	v.timer = time.AfterFunc(d, func() {
		c.lock()
		defer c.unlock()
		c.reopen(v)
	})
}

func (c *Consumer) reopen(v *valve) {
	if !v.closed {
		return
	}
	v.timer.Stop()
	v.closed, v.busy = false, false
	c.list(v)
}

// freed opens a valve that waits for a permit, since one was given back. The caller holds
// the lock.
func (c *Consumer) freed() {
	for c.busy.len() > 0 {
		v := c.busy.pop()
		v.waits = false
		if v.busy {
			c.reopen(v)
			return
		}
	}
}

// later is a duration with up to an eighth added at random: whoever was told the same
// time does not come back at the same time, and nobody too early.
func later(d time.Duration) time.Duration { return d + rand.N(d/8+1) }
