package keepalive

import (
	"net"
	"sync"
)

// returns is the listener by which net/http gets connections back. Those that are put are not many
// more than there are connections.
type returns struct {
	more chan struct{} // has something in it when there is something to look for

	mu     sync.Mutex // guards what follows
	closed bool
	conns  []*returnedConn
}

// returnedConn is a connection of which something was read already.
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

// CloseWrite tells the other end that nothing more comes. Net/http does it before it closes a
// connection whose client is still sending.
func (c *returnedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// giveBack has net/http serve a connection, of which rest was read already.
func (s *Server) giveBack(nc net.Conn, rest []byte, of *conn) {
	if !s.returned.put(&returnedConn{nc, rest, of}) {
		_ = nc.Close() // The server is closed.
	}
}

// put has a connection accepted. It reports false if the listener is closed.
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
	default: // It is to be looked already.
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

// Addr implements [net.Listener]. There is no address.
func (r *returns) Addr() net.Addr { return new(net.TCPAddr) }
