package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// watchers end operations of exchanges that take too long: a write to a client that accepts
// nothing, or a read from an upstream server that sends nothing. A timer or a deadline for each
// operation would cost more than everything else that is done for a request. So deadlines are kept
// in ticks, and one goroutine checks them. (Deadlines of the connection would not work anyway: one
// of an HTTP/2 stream resets the stream even if nothing is being written.)
type watchers struct {
	every  time.Duration // the length of a tick
	now    atomic.Int64  // in ticks
	next   atomic.Uint32
	shards [16]struct {
		mu    sync.Mutex // guards the list, and what of a watch is said to be guarded
		first *watch
	}
}

// ticks returns the number of ticks in d, rounded up, plus one for the tick that has begun.
func (ws *watchers) ticks(d time.Duration) int64 { return int64((d+ws.every-1)/ws.every) + 1 }

// run counts the ticks until ctx ends.
func (ws *watchers) run(ctx context.Context) {
	ticker := time.NewTicker(ws.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			ws.look(ws.now.Add(1))
		}
	}
}

// look ends operations that are late.
func (ws *watchers) look(now int64) {
	var late []io.Closer
	for i := range ws.shards {
		s := &ws.shards[i]
		s.mu.Lock()
		for w := s.first; w != nil; w = w.after {
			if by := w.writeBy.Load(); by != 0 && now >= by {
				_ = w.control.SetWriteDeadline(time.Unix(1, 0))
			}
			if by := w.readBy.Load(); by != 0 && now >= by && w.answer != nil {
				late = append(late, w.answer)
				w.answer = nil
			}
		}
		s.mu.Unlock()
	}
	for _, body := range late {
		// This makes a read that is under way fail.
		_ = body.Close()
	}
}

// watch has the deadlines of one exchange. It is reused with the exchange.
type watch struct {
	of    *watchers
	shard uint32
	// writeBy and readBy are the ticks by which a write or a read must end. They are zero while
	// there is none.
	writeBy, readBy atomic.Int64

	// The shard's lock guards the fields below.
	before, after *watch
	control       *http.ResponseController
	answer        io.Closer // the body of the answer
}

func (ws *watchers) newWatch() *watch {
	return &watch{of: ws, shard: ws.next.Add(1) % uint32(len(ws.shards))}
}

// begin starts watching a response.
func (w *watch) begin(control *http.ResponseController) {
	s := &w.of.shards[w.shard]
	s.mu.Lock()
	w.control, w.after = control, s.first
	if w.after != nil {
		w.after.before = w
	}
	s.first = w
	s.mu.Unlock()
}

// reading also watches reads of the answer's body.
func (w *watch) reading(body io.Closer) {
	s := &w.of.shards[w.shard]
	s.mu.Lock()
	w.answer = body
	s.mu.Unlock()
}

// end stops watching. Afterwards, the watchers use nothing of the exchange.
func (w *watch) end() {
	s := &w.of.shards[w.shard]
	s.mu.Lock()
	if w.before != nil {
		w.before.after = w.after
	} else {
		s.first = w.after
	}
	if w.after != nil {
		w.after.before = w.before
	}
	w.before, w.after, w.control, w.answer = nil, nil, nil, nil
	s.mu.Unlock()
	w.writeBy.Store(0)
	w.readBy.Store(0)
}

// watched is the body of an answer, which is watched while it is being read.
type watched struct {
	io.ReadCloser
	watch *watch
	ticks int64
	of    *http.Response
	ended func(*http.Response) // called with the response when the body was read to its end
}

func (b *watched) Read(p []byte) (int, error) {
	b.watch.readBy.Store(b.watch.of.now.Load() + b.ticks)
	n, err := b.ReadCloser.Read(p)
	// Time that the client takes must not count as a pause of the server.
	b.watch.readBy.Store(0)
	if errors.Is(err, io.EOF) {
		b.ended(b.of)
	}
	return n, err
}

// sending is a connection to an upstream server. The server may not block the gateway's writes for
// longer than idle. Only one goroutine writes at a time.
type sending struct {
	net.Conn
	idle  time.Duration
	of    *watchers
	among *conns
	by    int64 // the tick at which to move the deadline, which is later than that
}

func (c *sending) Write(p []byte) (int, error) {
	// The deadline is moved only now and then, because each move costs time.
	if now := c.of.now.Load(); c.by == 0 || now >= c.by {
		c.by = now + max(1, c.of.ticks(c.idle)/4)
		if err := c.SetWriteDeadline(time.Now().Add(c.idle + c.idle/4 + 2*c.of.every)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// Close implements [net.Conn].
func (c *sending) Close() error {
	c.among.remove(c)
	return c.Conn.Close()
}

// CloseWrite is for connections that were upgraded.
func (c *sending) CloseWrite() error { return closeWrite(c.Conn) }
