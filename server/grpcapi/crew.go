package grpcapi

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/status"
)

// permits bound the requests that are decided at the same time, over all streams and
// batches of a service.
type permits chan struct{}

// maxPermits is how many of them there may be.
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

// crew decides the requests of one stream side by side, each in a goroutine of its
// own; another sends what they have answered, all that is there in one message.
type crew struct {
	x       *exchange
	permits permits
	buffers *sync.Pool // of *[]byte

	places  chan struct{} // one in it for each request that is not handed on yet
	results chan *[]byte
	working sync.WaitGroup
	sending sync.WaitGroup
	failed  error // of sending; to be read when that has ended
}

func newCrew(x *exchange, p permits, buffers *sync.Pool) *crew {
	c := &crew{x: x, permits: p, buffers: buffers, places: make(chan struct{}, maxSideBySide), results: make(chan *[]byte, maxSideBySide)}
	c.sending.Go(c.send)
	return c
}

// hand has an item decided as soon as there is a place and a permit.
func (c *crew) hand(it item) error {
	for _, room := range []chan struct{}{c.places, c.permits} {
		select {
		case room <- struct{}{}:
		case <-c.x.ctx.Done():
			// The place is lost with the stream, and there is no permit.
			return status.FromContextError(c.x.ctx.Err()).Err()
		}
	}
	c.working.Go(func() { c.work(it) })
	return nil
}

// work decides one item. It has its permit no longer than that, for a caller who
// does not read answers holds up what comes then.
func (c *crew) work(it item) {
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
	c.results <- b // They are received until all work has ended.
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

// add adds a result to what is sent next.
func (c *crew) add(b *[]byte) {
	c.x.out.out = append(c.x.out.out, *b...)
	c.keep(b)
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
