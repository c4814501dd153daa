package app

import (
	"net"
	"sync"
)

// boundedListener accepts only as many connections at a time as free has room for. It closes
// further ones at once, and does not disturb those that exist.
type boundedListener struct {
	net.Listener
	free chan struct{} // one in it for each connection
}

// Accept implements [net.Listener].
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &boundedConn{Conn: c, leave: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			_ = c.Close() // It is one too many.
		}
	}
}

type boundedConn struct {
	net.Conn
	leave func()
}

// Close implements [net.Conn].
func (c *boundedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
