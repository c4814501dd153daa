package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// transport is one kind of stream: of questions Q and answers A.
type transport[Q, A any] interface {
	// open opens a stream that ends with the context.
	open(ctx context.Context) (stream[Q, A], error)
	// weight is about how many bytes a question takes.
	weight(Q) int
}

// stream is an open one. One goroutine sends, and another receives.
type stream[Q, A any] interface {
	send(items []item[Q]) error
	// receive waits for a message and hands out what is in it.
	receive(each func(number uint64, answer A, err error)) error
}

// mux decides for each call whether it goes over a stream or by itself, and keeps
// the stream: one at a time, opened when so many calls are under way that it pays.
type mux[Q, A any] struct {
	client    *Client
	from      int64
	transport transport[Q, A]
	calls     sync.Pool // of *call[Q, A]
	open      atomic.Pointer[line[Q, A]]

	mu      sync.Mutex // guards what follows
	busy    bool       // a stream is being opened, or open
	closed  bool
	again   time.Time     // when the next stream may be opened
	pause   time.Duration // after the next one that breaks
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newMux[Q, A any](c *Client, from int, t transport[Q, A]) *mux[Q, A] {
	m := &mux[Q, A]{client: c, from: int64(from), transport: t, pause: leastPause}
	m.calls.New = func() any { return &call[Q, A]{done: make(chan struct{}, 1)} }
	return m
}

// errUnsent is the error of a call that the server has not seen, or has said not to
// have decided: it may be made again.
var errUnsent = errors.New("the call was not sent")

// do asks over the stream if there is one, else by one, which makes a single call.
func (m *mux[Q, A]) do(ctx context.Context, q Q, one func(context.Context, Q) (A, error)) (answer A, err error) {
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	n, err := m.client.flight.begin()
	if err != nil {
		return answer, err
	}
	defer m.client.flight.end()
	l := m.open.Load()
	if l == nil && n >= m.from {
		m.want()
	}
	deadline, err := m.client.deadlines.shared()
	if err != nil {
		return answer, err
	}
	if l != nil {
		if answer, err = l.ask(ctx, deadline, q); !errors.Is(err, errUnsent) {
			return answer, err
		}
	}
	ctx, cancel := until(ctx, deadline)
	defer cancel()
	return one(ctx, q)
}

// want has a stream opened, unless one is, or it is too early after the last one
// broke. Until it is there, calls go by themselves.
func (m *mux[Q, A]) want() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy || m.closed || time.Now().Before(m.again) {
		return
	}
	m.busy = true
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.running.Go(func() {
		defer cancel()
		began := time.Now()
		m.broke(m.run(ctx, cancel), time.Since(began))
	})
}

// run opens a stream and serves it until it breaks.
func (m *mux[Q, A]) run(ctx context.Context, cancel context.CancelFunc) error {
	s, err := m.transport.open(ctx)
	if err != nil {
		return err
	}
	l := &line[Q, A]{mux: m, stream: s, queue: make(chan *call[Q, A], queued), waiting: make(map[uint64]*call[Q, A])}
	var sending sync.WaitGroup
	sending.Go(func() { l.send(ctx) })
	m.open.Store(l)
	err = l.receive()
	m.open.CompareAndSwap(l, nil)
	cancel()
	sending.Wait()
	l.end(err)
	return err
}

// broke notes that a stream has ended which lasted so long, and when there may be
// another.
func (m *mux[Q, A]) broke(err error, lasted time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy = false
	switch {
	case refuses(err):
		// The server has none, and will not have one soon.
		m.pause = refusedPause
	case lasted > mostPause:
		m.pause = leastPause
	}
	m.again = time.Now().Add(m.pause)
	m.pause = min(2*m.pause, refusedPause)
}

// refusedPause is when a server is asked again for a stream that it has refused.
const refusedPause = time.Minute

// close ends the stream and waits for its goroutines.
func (m *mux[Q, A]) close() {
	m.mu.Lock()
	m.closed = true
	if m.cancel != nil {
		m.cancel()
	}
	m.mu.Unlock()
	m.running.Wait()
}
