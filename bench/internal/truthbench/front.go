package truthbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// front passes connections on to processes in turn, as a balancer does.
type front struct {
	to []string
	// restart restarts what is under the processes, so long after the first connection, when the
	// limiter is kept busy; nil if nothing is to be restarted.
	restart func() error
	after   time.Duration

	l      net.Listener
	ctx    context.Context // ends with the front
	cancel context.CancelFunc
	all    sync.WaitGroup
	begun  atomic.Bool // the restart
	done   chan struct{}
	result error
}

// newFront listens at an address.
func newFront(ctx context.Context, listen string) (*front, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("truthbench: %w", err)
	}
	f := &front{l: l, after: 40 * time.Second, done: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f, nil
}

func (f *front) addr() string { return f.l.Addr().String() }

// serve passes connections on until the front is closed.
func (f *front) serve() {
	f.all.Go(func() {
		for n := 0; ; n++ {
			c, err := f.l.Accept()
			if err != nil {
				return // It was closed.
			}
			if n == 0 && f.restart != nil {
				f.all.Go(f.later)
			}
			f.all.Go(func() { f.pass(c, f.to[n%len(f.to)]) })
		}
	})
}

// later restarts when it is time.
func (f *front) later() {
	select {
	case <-f.ctx.Done():
	case <-time.After(f.after):
		f.begun.Store(true)
		f.result = f.restart()
		close(f.done)
	}
}

// restarted returns the result of the restart, if there was to be one. It waits for its end.
func (f *front) restarted() error {
	if f.restart == nil {
		return nil
	}
	if !f.begun.Load() {
		return errors.New("truthbench: the audit was over before the restart")
	}
	<-f.done
	return f.result
}

// pass passes one connection on.
func (f *front) pass(from net.Conn, addr string) {
	defer from.Close()
	var d net.Dialer
	to, err := d.DialContext(f.ctx, "tcp", addr)
	if err != nil {
		return // The client notices.
	}
	defer to.Close()
	stop := context.AfterFunc(f.ctx, func() { _, _ = from.Close(), to.Close() }) // They are of no use any more.
	defer stop()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, to) // A connection that ends is passed on as one that ends.
		_ = from.Close()
	})
	_, _ = io.Copy(to, from)
	_ = to.Close()
	back.Wait()
}

// close ends all connections.
func (f *front) close() error {
	f.cancel()
	err := f.l.Close()
	f.all.Wait()
	return err
}
