package target

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"github.com/redis/rueidis"
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

// pipelined is a client whose calls share a connection, however many there are at a time. The calls
// of the Client in it each take a connection for themselves.
type pipelined struct{ rueidis.Client }

// Do implements [rueidis.Client].
func (p pipelined) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	return p.Client.Do(ctx, command.ToPipe())
}

// DoMulti implements [rueidis.Client].
func (p pipelined) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	for i := range commands {
		commands[i] = commands[i].ToPipe()
	}
	return p.Client.DoMulti(ctx, commands...)
}

// Nodes implements [rueidis.Client].
func (p pipelined) Nodes() map[string]rueidis.Client {
	nodes := p.Client.Nodes()
	for name, node := range nodes {
		nodes[name] = pipelined{node}
	}
	return nodes
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
		l.gone = readable(fd)
		return true
	}
	over, encrypted := c.(*tls.Conn)
	if encrypted {
		c = over.NetConn()
	}
	if socket, ok := c.(syscall.Conn); ok {
		// Without raw, Write does not check the connection, and the call finds out that it is
		// closed.
		l.raw, _ = socket.SyscallConn()
	}
	if l.raw != nil && !encrypted {
		l.Conn = newSocket(c, l.raw)
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
