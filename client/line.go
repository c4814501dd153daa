package client

import (
	"context"
	"runtime"
	"sync"
)

// call is a question on its way over a stream.
type call[Q, A any] struct {
	number   uint64
	question Q
	sent     bool
	answer   A
	err      error
	done     chan struct{} // has one in it when the answer or the error is there
}

// The bounds of what is sent in one message, and of what waits to be. Heavier
// questions than maxWeight do not go over streams.
const (
	maxTogether = 256
	maxWeight   = 64 << 10
	queued      = 1024
)

// line is one stream in use.
type line[Q, A any] struct {
	mux    *mux[Q, A]
	stream stream[Q, A]
	queue  chan *call[Q, A]

	mu      sync.Mutex // guards what follows, and number and sent of the calls
	waiting map[uint64]*call[Q, A]
	last    uint64
	ended   bool
}

// ask has the question sent and waits for its answer. The error is that of a
// context, of the stream or of the server.
func (l *line[Q, A]) ask(ctx, deadline context.Context, q Q) (answer A, err error) {
	c, _ := l.mux.calls.Get().(*call[Q, A])
	c.question, c.sent = q, false
	if !l.add(c) {
		return answer, errUnsent
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if l.leave(c) {
			return answer, ctx.Err()
		}
		<-c.done
	case <-deadline.Done():
		if l.leave(c) {
			return answer, deadline.Err()
		}
		<-c.done
	}
	var (
		noQuestion Q
		noAnswer   A
	)
	answer, err = c.answer, c.err
	c.question, c.answer, c.err = noQuestion, noAnswer, nil
	l.mux.calls.Put(c) // The queue has it no more: it was sent, or sending has ended.
	return answer, err
}

// add puts a call among those to be sent. It reports false if the stream has ended
// or does not keep up.
func (l *line[Q, A]) add(c *call[Q, A]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.last++
	c.number = l.last
	select {
	case l.queue <- c:
		l.waiting[c.number] = c
		return true
	default:
		return false
	}
}

// leave gives up a call. It reports false if its outcome is there, or about to be.
func (l *line[Q, A]) leave(c *call[Q, A]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[c.number] != c {
		return false
	}
	delete(l.waiting, c.number)
	return true
}

// item is a question as it is sent.
type item[Q any] struct {
	number   uint64
	question Q
}

// send sends what is in the queue, all that is there in one message.
func (l *line[Q, A]) send(ctx context.Context) {
	batch := make([]*call[Q, A], 0, maxTogether)
	items := make([]item[Q], 0, maxTogether)
	for {
		var next *call[Q, A]
		select {
		case next = <-l.queue:
		case <-ctx.Done():
			return
		}
		if l.mux.client.flight.n.Load() > 1 {
			// Others may be about to ask, and would rather go along.
			runtime.Gosched()
		}
		batch = batch[:0]
		for weight := 0; next != nil; next = l.ready() {
			// Nobody writes to a question that was not sent.
			if w := l.mux.transport.weight(next.question); w > maxWeight {
				l.alone(next)
			} else {
				batch = append(batch, next)
				weight += w
			}
			if weight >= maxWeight || len(batch) == maxTogether {
				break
			}
		}
		items = l.wanted(items[:0], batch)
		clear(batch)
		if len(items) == 0 {
			continue
		}
		if l.stream.send(items) != nil {
			return // Receiving says why.
		}
		clear(items)
	}
}

// ready returns a call that is in the queue, or nil.
func (l *line[Q, A]) ready() *call[Q, A] {
	select {
	case c := <-l.queue:
		return c
	default:
		return nil
	}
}

// alone has a call made by itself that is so large that the server may end the stream
// for it, and with that all others.
func (l *line[Q, A]) alone(c *call[Q, A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[c.number] == c {
		delete(l.waiting, c.number)
		c.err = errUnsent
		c.done <- struct{}{}
	}
}

// wanted appends the calls that somebody still waits for. From here on they may
// have been decided.
func (l *line[Q, A]) wanted(items []item[Q], batch []*call[Q, A]) []item[Q] {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range batch {
		if l.waiting[c.number] == c {
			c.sent = true
			items = append(items, item[Q]{c.number, c.question})
		}
	}
	return items
}

// receive hands out answers until the stream ends, and returns why.
func (l *line[Q, A]) receive() error {
	for {
		if err := l.stream.receive(l.answered); err != nil {
			return err
		}
	}
}

func (l *line[Q, A]) answered(number uint64, answer A, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.waiting[number]
	if c == nil || !c.sent {
		return // It was given up, or the server makes it up.
	}
	delete(l.waiting, number)
	c.answer, c.err = answer, err
	c.done <- struct{}{}
}

// end tells all that still wait why the stream has ended.
func (l *line[Q, A]) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	safe := undecided(err)
	for number, c := range l.waiting {
		delete(l.waiting, number)
		if c.err = err; safe || !c.sent {
			c.err = errUnsent
		}
		c.done <- struct{}{}
	}
}
