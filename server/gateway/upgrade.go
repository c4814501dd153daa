package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// upgrades are connections that no longer use HTTP, such as WebSockets. No server tracks them any
// more.
type upgrades struct {
	mu     sync.Mutex // guards what follows
	open   map[*upgraded]struct{}
	closed bool
}

// upgrading has the rules for upgrades.
type upgrading struct {
	*upgrades
	idle, within time.Duration
	protocols    []string // the allowed protocols, in lower case
}

// allow reports whether an upgrade to a protocol is allowed. With some protocols, such as h2c, the
// gateway would no longer see the requests.
func (u *upgrading) allow(header []string) bool {
	return len(header) == 1 && slices.Contains(u.protocols, strings.ToLower(header[0]))
}

// add takes over a connection, with the bytes that were already read from it. It fails if upgrades
// is closed.
func (u *upgrading) add(conn net.Conn, read *bufio.Reader) (*upgraded, error) {
	up := &upgraded{Conn: conn, of: u}
	if n := read.Buffered(); n > 0 {
		early, err := read.Peek(n)
		if err != nil {
			return nil, err
		}
		up.early = bytes.Clone(early)
	}
	up.touch()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, errClosed
	}
	u.open[up] = struct{}{}
	return up, nil
}

// close closes all connections, and makes add refuse new ones.
func (u *upgrades) close() {
	u.mu.Lock()
	u.closed = true
	all := make([]*upgraded, 0, len(u.open))
	for up := range u.open {
		all = append(all, up)
	}
	u.mu.Unlock()
	for _, up := range all {
		_ = up.Close()
	}
}

// count returns the number of connections.
func (u *upgrades) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.open)
}

// upgraded is such a connection. It is closed when neither side has sent anything for a while, or
// when the client does not accept what it is sent.
type upgraded struct {
	net.Conn
	of      *upgrading
	early   []byte // bytes that were read before the upgrade
	sent    atomic.Int64
	touched atomic.Int64 // when something was last sent, in nanoseconds since 1970
}

// touch moves the deadline after a quarter of the time has passed.
func (c *upgraded) touch() {
	now := time.Now()
	if last := c.touched.Load(); now.UnixNano()-last > int64(c.of.idle/4) && c.touched.CompareAndSwap(last, now.UnixNano()) {
		_ = c.SetReadDeadline(now.Add(c.of.idle))
	}
}

func (c *upgraded) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.touch()
	}
	return n, err
}

func (c *upgraded) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.of.within))
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	c.touch()
	return n, err
}

// CloseWrite tells the client that no more data will come.
func (c *upgraded) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite closes one direction of a connection. The error says that the connection can only be
// closed as a whole.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *upgraded) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
