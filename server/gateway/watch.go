package gateway

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// watch ends what takes too long while an exchange goes on: a write to a client that
// takes nothing, a read from an upstream server that sends nothing. Deadlines are
// noted, which costs next to nothing, and a timer looks at them now and then: most
// exchanges are over before it does once. A deadline of the connection would do for
// writes over HTTP/1, but one of a stream of HTTP/2 resets it even if nothing is
// being written.
type watch struct {
	every time.Duration
	timer *time.Timer
	base  time.Time
	// writeBy and readBy are the deadlines, in nanoseconds since base; zero while
	// nothing is written or read.
	writeBy, readBy atomic.Int64

	mu      sync.Mutex // guards what follows
	on      bool
	control *http.ResponseController
	answer  io.Closer // its body
}

func newWatch(every time.Duration) *watch {
	w := &watch{every: every, base: time.Now()}
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
	return w
}

// begin begins to watch a response.
func (w *watch) begin(control *http.ResponseController) {
	w.mu.Lock()
	w.on, w.control = true, control
	w.mu.Unlock()
	w.timer.Reset(w.every)
}

// reading has the body watched, too, that answers the request.
func (w *watch) reading(body io.Closer) {
	w.mu.Lock()
	w.answer = body
	w.mu.Unlock()
}

// end ends watching: nothing of the exchange is touched afterwards.
func (w *watch) end() {
	w.timer.Stop()
	w.mu.Lock()
	w.on, w.control, w.answer = false, nil, nil
	w.mu.Unlock()
	w.writeBy.Store(0)
	w.readBy.Store(0)
}

// in is a deadline.
func (w *watch) in(d time.Duration) int64 { return int64(time.Since(w.base) + d) }

// look ends what is late. The timer may have gone off for an exchange before; then
// it looks once more than it would have.
func (w *watch) look() {
	w.mu.Lock()
	if !w.on {
		w.mu.Unlock()
		return
	}
	now := w.in(0)
	if by := w.writeBy.Load(); by != 0 && now >= by {
		_ = w.control.SetWriteDeadline(time.Unix(1, 0))
	}
	var late io.Closer
	if by := w.readBy.Load(); by != 0 && now >= by {
		late = w.answer
	}
	w.timer.Reset(w.every)
	w.mu.Unlock()
	if late != nil {
		// A read that is going on ends with an error.
		_ = late.Close()
	}
}

// watched is the body of an answer that is watched while it is read.
type watched struct {
	io.ReadCloser
	watch *watch
	idle  time.Duration
}

func (b *watched) Read(p []byte) (int, error) {
	b.watch.readBy.Store(b.watch.in(b.idle))
	n, err := b.ReadCloser.Read(p)
	// What the client takes its time for is not the server's pause.
	b.watch.readBy.Store(0)
	return n, err
}

// sending is a connection to an upstream server, which may not keep the gateway from
// sending for longer than idle. One goroutine at a time writes.
type sending struct {
	net.Conn
	idle time.Duration
	base time.Time
	by   time.Duration // the deadline, since base
}

func (c *sending) Write(p []byte) (int, error) {
	// The deadline is moved when a quarter of the time is over: each move costs.
	if by := time.Since(c.base) + c.idle; by-c.by > c.idle/4 {
		c.by = by
		if err := c.SetWriteDeadline(c.base.Add(by)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// CloseWrite is for connections that were upgraded.
func (c *sending) CloseWrite() error { return closeWrite(c.Conn) }
