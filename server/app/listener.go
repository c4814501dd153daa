package app

import (
	"net"
	"sync"
)

// boundedListener closes connections at once of which there would be more than free has room
// for. Those that are there are not disturbed.
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
