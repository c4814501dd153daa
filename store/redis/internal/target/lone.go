package target

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"github.com/redis/rueidis"
)

// ErrGone is the error of a lone call whose connection was closed before. Nothing was sent.
var ErrGone = errors.New("the connection was closed before the call")

// loneKey marks the context of a call that connects the lone connection.
type loneKey struct{}

// Lone returns the context of a first lone call, which connects. The connection that is made
// with such a context looks whether the server has closed it before it writes.
func Lone(ctx context.Context) context.Context { return context.WithValue(ctx, loneKey{}, true) }

// pipelined is a client whose calls share a connection, however many there are at a time. The
// client in it has each call take a connection for itself.
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

// loneLink is a connection that one call has to itself at a time. Nobody reads between calls,
// so nobody would notice that the server has closed it.
type loneLink struct {
	net.Conn
	raw  syscall.RawConn // nil if it cannot be asked
	look func(fd uintptr) bool
	gone bool
}

func newLoneLink(c net.Conn) *loneLink {
	l := &loneLink{Conn: c}
	l.look = func(fd uintptr) bool {
		l.gone = readable(fd)
		return true
	}
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	if c, ok := c.(syscall.Conn); ok {
		// Without it the connection is not looked at, and a call finds out that it is gone.
		l.raw, _ = c.SyscallConn()
	}
	return l
}

// Write implements [net.Conn]. Between calls there is nothing to read but the end: what else
// comes unasked belongs to no call.
func (l *loneLink) Write(b []byte) (int, error) {
	if l.raw != nil {
		if err := l.raw.Read(l.look); err != nil || l.gone {
			return 0, ErrGone
		}
	}
	return l.Conn.Write(b)
}
