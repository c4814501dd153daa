package keepalive

import (
	"net"
	"sync"
)

// returns is the listener through which net/http gets connections back from standby. Its queue is
// unbounded, but in practice hardly longer than the number of connections.
type returns struct {
	more chan struct{} // has an element when Accept should look at the fields below

	mu     sync.Mutex // guards what follows
	closed bool
	conns  []*returnedConn
}

// returnedConn is a connection from which something was read already. Read returns rest before what
// the connection has.
type returnedConn struct {
	net.Conn
	rest []byte
	of   *conn
}

// Read implements [net.Conn].
func (c *returnedConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.rest = nil
	}
	return n, nil
}

// CloseWrite closes the sending side. Net/http calls it before it closes a connection whose client
// is still sending.
func (c *returnedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// giveBack has net/http serve a connection from which rest was read already.
func (s *Server) giveBack(nc net.Conn, rest []byte, of *conn) {
	if !s.returned.put(&returnedConn{nc, rest, of}) {
		_ = nc.Close() // The server is closed, and nobody needs the error.
	}
}

// put queues a connection for Accept. It reports false if the listener is closed.
func (r *returns) put(c *returnedConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.conns = append(r.conns, c)
	r.notify()
	return true
}

func (r *returns) notify() {
	select {
	case r.more <- struct{}{}:
	default: // A notification is pending already.
	}
}

// Accept implements [net.Listener].
func (r *returns) Accept() (net.Conn, error) {
	for {
		r.mu.Lock()
		switch {
		case r.closed:
			r.mu.Unlock()
			return nil, net.ErrClosed
		case len(r.conns) > 0:
			c := r.conns[0]
			r.conns[0] = nil
			r.conns = r.conns[1:]
			r.mu.Unlock()
			return c, nil
		}
		r.mu.Unlock()
		<-r.more
	}
}

// Close implements [net.Listener].
func (r *returns) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	for _, c := range r.conns {
		_ = c.Conn.Close()
	}
	r.conns = nil
	r.notify()
	return nil
}

// Addr implements [net.Listener]. There is no real address.
func (r *returns) Addr() net.Addr { return new(net.TCPAddr) }
