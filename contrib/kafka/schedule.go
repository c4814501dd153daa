package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/dispatch"
)

// newDispatcher returns the dispatcher that starts a Consumer's items. Records that ask the gate
// with the same key wait for each other. Letters do not ask the gate.
func (c *Consumer) newDispatcher() *dispatch.Dispatcher[*item] {
	return dispatch.New(dispatch.Config[*item]{
		Lock:    (*locker)(c),
		Gate:    c.config.Gate,
		Workers: c.config.Workers,
		Context: func(it *item) context.Context { return it.of.ctx },
		Wants:   func(it *item) bool { return it.of.wants(it) },
		Begin:   c.begin,
		End:     c.end,
		Run:     c.run,
		Refused: c.refused,
		Never:   func(it *item, err error) { c.fail(it, Permanent(err)) },
	})
}

// submit hands an item to the dispatcher. The caller holds the lock.
func (c *Consumer) submit(it *item) {
	if it.letter != nil {
		c.dispatch.Start(it)
		return
	}
	if early := c.until(it.of, it.record, time.Now()); early > 0 {
		c.wait(it, early)
		return
	}
	c.dispatch.Ask(it, c.config.Request(it.record))
}

// begin counts an item as running, and end stops counting it. The caller holds the lock.
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

// refused counts what the gate refuses, and reports errors of the gate. The caller holds the lock.
func (c *Consumer) refused(it *item, err error) {
	c.counts.Refused++
	if _, ok := errors.AsType[*flow.Rejection](err); !ok && it.of.ctx.Err() == nil {
		c.trouble(err)
	}
}

// locker is the Consumer's lock, for the dispatcher.
type locker Consumer

func (l *locker) Lock()   { (*Consumer)(l).lock() }
func (l *locker) Unlock() { (*Consumer)(l).unlock() }
