package standby

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a [net.Conn] on a duplicated file descriptor. A [net.TCPConn] can be made only by
// duplicating the descriptor again, which could fail when there are no descriptors left.
type conn struct {
	file          *os.File
	local, remote net.Addr
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.file.Read(b)
	return n, c.mistake("read", err)
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.file.Write(b)
	return n, c.mistake("write", err)
}

// mistake converts an error of the file into the form that connections use. Net/http recognizes a
// passed deadline only in that form.
func (c *conn) mistake(op string, err error) error {
	var of *fs.PathError
	if !errors.As(err, &of) {
		return err
	}
	cause := of.Err
	if errors.Is(err, os.ErrClosed) {
		cause = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: cause}
}

// Close implements [net.Conn].
func (c *conn) Close() error { return c.mistake("close", c.file.Close()) }

// LocalAddr implements [net.Conn].
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements [net.Conn].
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements [net.Conn].
func (c *conn) SetDeadline(t time.Time) error { return c.mistake("set", c.file.SetDeadline(t)) }

// SetReadDeadline implements [net.Conn].
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.mistake("set", c.file.SetReadDeadline(t))
}

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.mistake("set", c.file.SetWriteDeadline(t))
}

// SyscallConn implements [syscall.Conn].
func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.file.SyscallConn() }

// CloseWrite closes the sending side of the connection.
func (c *conn) CloseWrite() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) }); e != nil {
		return e
	}
	return err
}
