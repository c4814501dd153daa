package keepalive

import (
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"time"
)

const (
	// first is how many plain requests net/http answers on a new connection before it goes on standby.
	// A client that does not reuse its connections sends only one request on each.
	first = 1
	// again is how many plain requests net/http answers on a connection that has left standby before
	// it returns there, because the reason for leaving may recur. If the connection leaves again
	// before as many requests were answered on standby, the number doubles, up to maxPenalty. This
	// happens with clients that send the head and the body of each request in two writes.
	again      = 64
	maxPenalty = 1 << 16
)

// conn is a client's connection. It is with net/http, on standby, or held by the server on its way
// between them. Only one goroutine at a time uses it.
type conn struct {
	server      *Server
	remote      string
	penalty     int    // plain requests for net/http to answer before it goes on standby
	lastPenalty int    // the value to which penalize has set penalty last
	done        int    // requests answered on standby since penalize was called last
	rest        []byte // bytes that arrived on standby, for net/http to read first
	last        bool   // The connection is closed after the current answer.
}

// Arrived implements [standby.Member]. It answers a plain request that has arrived complete, and
// leaves everything else to net/http.
func (c *conn) Arrived(data, out []byte) (answer []byte, stay bool) {
	data = data[newlines(data):]
	if len(data) == 0 {
		return out, true
	}
	before := len(out)
	defer func() {
		if p := recover(); p != nil {
			// As in net/http, the unfinished answer is dropped with the connection. The exchange is not
			// reused, because the handler may have left a reference to it.
			c.last = true
			answer, stay = out[:before], false
			if p != http.ErrAbortHandler { //nolint:errorlint // net/http documents this very value.
				c.server.logf("http: panic serving %v: %v\n%s", c.remote, p, debug.Stack())
			}
		}
	}()
	e := c.server.exchanges.Get().(*exchange)
	if !e.read(data, c.server.instant) {
		e.reset()
		c.server.exchanges.Put(e)
		c.rest = append([]byte(nil), data...)
		c.penalize()
		return out, false
	}
	c.done++
	e.request.RemoteAddr = c.remote
	c.server.next.ServeHTTP(&e.answer, e.request)
	out, c.last = e.answer.appendTo(out)
	e.reset()
	c.server.exchanges.Put(e)
	return out, !c.last
}

// penalize sets how many plain requests net/http answers before the connection goes on standby again.
func (c *conn) penalize() {
	if c.done < c.lastPenalty {
		c.lastPenalty = min(2*c.lastPenalty, maxPenalty)
	} else {
		c.lastPenalty = again
	}
	c.penalty, c.done = c.lastPenalty, 0
}

// newlines returns the number of line-break bytes at the start of data, at most 4. Like net/http,
// the server skips them: some old clients send a line break after the body of a POST.
func newlines(data []byte) int {
	n := 0
	for n < min(len(data), 4) && (data[n] == '\r' || data[n] == '\n') {
		n++
	}
	return n
}

// Left implements [standby.Member].
func (c *conn) Left(nc net.Conn, unsent []byte) {
	rest := c.rest
	c.rest = nil
	switch {
	case nc == nil:
	case len(rest) > 0:
		c.server.giveBack(nc, rest, c)
	case len(unsent) == 0 && !c.last:
		// The server is being shut down, and the connection is idle.
		_ = nc.Close()
	default:
		c.server.running.Go(func() { c.conclude(nc, unsent, nil) })
	}
}

// conclude sends the answer and puts the connection back on standby. rest is what has arrived after
// the request that was answered; if there is any, or the pool does not take the connection,
// net/http serves it.
func (c *conn) conclude(nc net.Conn, answer, rest []byte) {
	if !c.server.hold(nc) {
		_ = nc.Close()
		return
	}
	defer c.server.release(nc)
	if within := c.server.http.WriteTimeout; within > 0 {
		_ = nc.SetWriteDeadline(time.Now().Add(within)) // If it fails, so does Write.
	}
	_, err := nc.Write(answer)
	switch {
	case err != nil:
	case c.last:
		linger(nc)
	case len(rest) == 0 && c.enter(nc):
		return
	case len(rest) == 0 && c.server.isEnded():
	default:
		c.penalize()
		c.server.giveBack(nc, rest, c)
		return
	}
	_ = nc.Close() // An error has no consequence: the connection is given up.
}

// enter puts the connection on standby, and reports whether the pool took it.
func (c *conn) enter(nc net.Conn) bool {
	for {
		back, ok := nc.(*returnedConn)
		if !ok {
			return c.server.pool.Enter(nc, c)
		}
		if len(back.rest) > 0 {
			return false
		}
		nc = back.Conn
	}
}

// linger closes the sending side and waits a moment for the client to read the answer and close: an
// immediate close could reset the connection and discard the answer. The time is the one net/http
// uses.
func linger(nc net.Conn) {
	half, ok := nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	const within = 500 * time.Millisecond
	_ = nc.SetReadDeadline(time.Now().Add(within))
	_, _ = io.Copy(io.Discard, nc) // It ends at the deadline, or when the client closes.
}
