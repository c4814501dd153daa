package keepalive

import (
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"time"
)

const (
	// first is how many plain requests net/http answers on a new connection before it goes on
	// standby: most connections of programs that do not keep them have one.
	first = 1
	// again is how many it answers at least on a connection that has left the standby: what made it
	// leave may come often. If the connection leaves before as many were answered on standby, there
	// are twice as many next time, up to mostOwed. Some clients send head and body of each request in
	// two pieces.
	again    = 64
	mostOwed = 1 << 16
)

// conn is a connection with a client, which is net/http's, on standby, or held by the server on the
// way between these. One goroutine at a time has it.
type conn struct {
	server *Server
	remote string
	owed   int    // how many plain requests are to come before it goes on standby
	owing  int    // how many there were when it left the standby last
	done   int    // how many were answered on standby since
	rest   []byte // what has arrived on standby and is net/http's to answer
	last   bool   // The answer was the last one.
}

// Arrived implements [standby.Member]. It answers a plain request that is there as a whole, and
// leaves everything else to net/http.
func (c *conn) Arrived(data, out []byte) (answer []byte, stay bool) {
	data = data[newlines(data):]
	if len(data) == 0 {
		return out, true
	}
	before := len(out)
	defer func() {
		if p := recover(); p != nil {
			// As in net/http, the answer so far is dropped with the connection. Somebody may still
			// hold the exchange.
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
		c.owe()
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

// owe has net/http answer plain requests before the connection goes on standby again.
func (c *conn) owe() {
	if c.done < c.owing {
		c.owing = min(2*c.owing, mostOwed)
	} else {
		c.owing = again
	}
	c.owed, c.done = c.owing, 0
}

// newlines is how many bytes net/http passes over before a request that follows a POST: old clients
// send a newline after the body.
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

// conclude sends the answer and has the connection wait for the next request, of which rest has
// arrived already.
func (c *conn) conclude(nc net.Conn, answer, rest []byte) {
	if !c.server.hold(nc) {
		_ = nc.Close()
		return
	}
	defer c.server.release(nc)
	if within := c.server.http.WriteTimeout; within > 0 {
		_ = nc.SetWriteDeadline(time.Now().Add(within)) // Of a closed connection, Write says so.
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
		c.owe()
		c.server.giveBack(nc, rest, c)
		return
	}
	_ = nc.Close() // There is nobody to tell.
}

// enter has the connection wait on standby, and reports whether it does.
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

// linger tells the other end that nothing more comes, and lets it take the answer: to close the
// connection at once could take that away again. The time is net/http's.
func linger(nc net.Conn) {
	half, ok := nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	const within = 500 * time.Millisecond
	_ = nc.SetReadDeadline(time.Now().Add(within))
	_, _ = io.Copy(io.Discard, nc) // It ends with the deadline, or by the other end.
}
