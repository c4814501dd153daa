package grpcapi

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/status"
)

// permits bound the goroutines that decide side by side, over all streams and
// batches of a service.
type permits chan struct{}

// maxWorkers is how many of them there may be.
const maxWorkers = 4096

func newPermits() permits { return make(permits, maxWorkers) }

func (p permits) take() bool {
	select {
	case p <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p permits) give() { <-p }

// crew decides the requests of one stream side by side. Its goroutines come as
// they are needed and stay until the stream ends; another sends what they have
// answered, all that is there in one message.
type crew struct {
	x       *exchange
	permits permits
	buffers *sync.Pool // of *[]byte

	items   chan item
	results chan *[]byte
	workers int
	working sync.WaitGroup
	sending sync.WaitGroup
	failed  error // of sending; to be read when that has ended
}

// maxAnswer bounds the results that are sent in one message, in bytes, and the
// buffers that are kept.
const maxAnswer = 32 << 10

func newCrew(x *exchange, p permits, buffers *sync.Pool) *crew {
	return &crew{x: x, permits: p, buffers: buffers, items: make(chan item), results: make(chan *[]byte, maxSideBySide)}
}

// hand has an item decided as soon as somebody is free.
func (c *crew) hand(it item) error {
	select {
	case c.items <- it:
		return nil
	default:
	}
	if c.workers == 0 {
		// The first one needs no permit, so that every stream goes on.
		c.workers = 1
		c.sending.Go(c.send)
		c.working.Go(func() { c.work(it) })
		return nil
	}
	if c.workers < maxSideBySide && c.permits.take() {
		c.workers++
		c.working.Go(func() {
			defer c.permits.give()
			c.work(it)
		})
		return nil
	}
	select {
	case c.items <- it:
		return nil
	case <-c.x.ctx.Done():
		return status.FromContextError(c.x.ctx.Err()).Err()
	}
}

// work decides one item after another, until there are no more.
func (c *crew) work(it item) {
	defer c.x.caught()
	for more := true; more; it, more = <-c.items {
		b, _ := c.buffers.Get().(*[]byte)
		if b == nil {
			b = new([]byte)
		}
		*b = c.x.append((*b)[:0], it)
		c.results <- b // They are received until all work has ended.
	}
}

// send sends results until there will be no more.
func (c *crew) send() {
	defer c.x.caught()
	// What was answered is to be taken, whatever happens here.
	defer func() {
		for b := range c.results {
			c.keep(b)
		}
	}()
	for b := range c.results {
		out := append(c.x.out.out[:0], *b...)
		c.keep(b)
		for n := 1; n < MaxTogether && len(out) < maxAnswer; n++ {
			b := c.ready()
			if b == nil {
				break
			}
			out = append(out, *b...)
			c.keep(b)
		}
		c.x.out.out = out
		if c.failed = c.x.stream.SendMsg(c.x.out); c.failed != nil {
			c.x.cancel()
			return
		}
	}
}

// ready returns a result that is there already, or nil.
func (c *crew) ready() *[]byte {
	select {
	case b := <-c.results: // nil after the last one
		return b
	default:
		return nil
	}
}

func (c *crew) keep(b *[]byte) {
	if cap(*b) <= maxAnswer {
		c.buffers.Put(b)
	}
}

// end waits until what was handed over is answered and sent.
func (c *crew) end() error {
	close(c.items)
	c.working.Wait()
	close(c.results)
	c.sending.Wait()
	return c.failed
}

// sideBySide calls do with 0 to n-1, in this goroutine and as many others as pay
// and are permitted. A panic in one of them happens here.
func sideBySide(p permits, n int, do func(i int)) {
	var (
		next     atomic.Int64
		panicked atomic.Pointer[any]
		others   sync.WaitGroup
	)
	work := func() {
		defer func() {
			if p := recover(); p != nil {
				panicked.CompareAndSwap(nil, &p)
				next.Store(int64(n))
			}
		}()
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			do(int(i))
		}
	}
	for range min(n, maxSideBySide) - 1 {
		if !p.take() {
			break
		}
		others.Go(func() {
			defer p.give()
			work()
		})
	}
	work()
	others.Wait()
	if p := panicked.Load(); p != nil {
		panic(*p)
	}
}
