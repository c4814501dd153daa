package grpcapi

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/status"
)

// permits is a semaphore for the requests that are decided at the same time, over all streams and
// batches of a service.
type permits chan struct{}

// maxPermits is the maximum number of such requests.
const maxPermits = 4096

func newPermits() permits { return make(permits, maxPermits) }

func (p permits) take() bool {
	select {
	case p <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p permits) give() { <-p }

// workers decides the requests of one stream concurrently, each in a goroutine of its own. One more
// goroutine sends the results, as many in one message as are ready.
type workers struct {
	x       *exchange
	permits permits
	buffers *sync.Pool // of *[]byte

	// places is a semaphore: one element for each request whose result was not handed on yet.
	places  chan struct{}
	results chan *[]byte
	working sync.WaitGroup
	sending sync.WaitGroup
	failed  error // the error of sending; read it only after sending has ended
}

func newWorkers(x *exchange, p permits, buffers *sync.Pool) *workers {
	c := &workers{x: x, permits: p, buffers: buffers, places: make(chan struct{}, maxSideBySide), results: make(chan *[]byte, maxSideBySide)}
	c.sending.Go(c.send)
	return c
}

// hand starts a goroutine that decides an item, as soon as the semaphores have room.
func (c *workers) hand(it item) error {
	for _, room := range []chan struct{}{c.places, c.permits} {
		select {
		case room <- struct{}{}:
		case <-c.x.ctx.Done():
			// A place that was taken is not given back, because the stream ends.
			return status.FromContextError(c.x.ctx.Err()).Err()
		}
	}
	c.working.Go(func() { c.work(it) })
	return nil
}

// work decides one item. It gives its permit back before it hands on the result, because a caller
// that does not read answers can block that.
func (c *workers) work(it item) {
	defer c.x.caught()
	defer func() { <-c.places }()
	b, _ := c.buffers.Get().(*[]byte)
	if b == nil {
		b = new([]byte)
	}
	func() {
		defer c.permits.give()
		*b = c.x.append((*b)[:0], it)
	}()
	c.results <- b // Results are received until all work has ended.
}

// send sends results until the channel is closed.
func (c *workers) send() {
	defer c.x.caught()
	// After an error, results must still be received, or work would block.
	defer func() {
		for b := range c.results {
			c.keep(b)
		}
	}()
	for b := range c.results {
		c.add(b)
		for n := 1; n < MaxTogether && len(c.x.out.out) < maxAnswer; n++ {
			b := c.ready()
			if b == nil {
				break
			}
			c.add(b)
		}
		if c.failed = c.x.flush(); c.failed != nil {
			c.x.cancel()
			return
		}
	}
}

// add adds a result to the next message.
func (c *workers) add(b *[]byte) {
	c.x.out.out = append(c.x.out.out, *b...)
	c.keep(b)
}

// ready returns a result that is there already, or nil.
func (c *workers) ready() *[]byte {
	select {
	case b := <-c.results: // nil when the channel is closed
		return b
	default:
		return nil
	}
}

func (c *workers) keep(b *[]byte) {
	if cap(*b) <= maxAnswer {
		c.buffers.Put(b)
	}
}

// end waits until all items that were handed to the workers are answered and sent.
func (c *workers) end() error {
	c.working.Wait()
	close(c.results)
	c.sending.Wait()
	return c.failed
}

// sideBySide calls do for 0 to n-1, concurrently in this goroutine and at most maxSideBySide-1
// others, as far as p allows. If a call panics, sideBySide panics in this goroutine.
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
