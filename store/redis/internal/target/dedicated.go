package target

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"github.com/headgate/headgate/internal/socket"
)

// ErrGone is the error of a dedicated call whose connection had been closed before the call.
// Nothing was sent.
var ErrGone = errors.New("the connection was closed before the call")

// dedicatedKey marks the context of a call that makes the connection for dedicated calls.
type dedicatedKey struct{}

// Dedicated returns the context for the first dedicated call, which connects. Before each write, a
// connection that was made with such a context checks whether the server has closed it.
func Dedicated(ctx context.Context) context.Context {
	return context.WithValue(ctx, dedicatedKey{}, true)
}

// dedicatedConn is a connection for one call at a time. Between calls no goroutine reads from it,
// so none would notice that the server has closed it.
type dedicatedConn struct {
	net.Conn
	raw  syscall.RawConn // nil if the connection has none
	look func(fd uintptr) bool
	gone bool
}

func newDedicatedConn(c net.Conn) *dedicatedConn {
	l := &dedicatedConn{Conn: c}
	l.look = func(fd uintptr) bool {
		l.gone = socket.Readable(fd)
		return true
	}
	over, encrypted := c.(*tls.Conn)
	if encrypted {
		c = over.NetConn()
	}
	if s, ok := c.(syscall.Conn); ok {
		// Without raw, Write does not check the connection, and the call finds out that it is
		// closed.
		l.raw, _ = s.SyscallConn()
	}
	if l.raw != nil && !encrypted {
		l.Conn = socket.New(c)
	}
	return l
}

// Write implements [net.Conn]. Between calls, the only thing to read is the end of the connection.
// Anything else that arrives belongs to no call, so Write fails then, too.
func (l *dedicatedConn) Write(b []byte) (int, error) {
	if l.raw != nil {
		if err := l.raw.Read(l.look); err != nil || l.gone {
			return 0, ErrGone
		}
	}
	return l.Conn.Write(b)
}
