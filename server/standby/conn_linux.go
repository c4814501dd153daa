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

// conn is a connection by its file descriptor. There is no way to make it a [net.TCPConn] that
// could not fail for want of file descriptors.
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

// mistake is an error of the file as connections have it: net/http takes no other one for a
// deadline that has passed.
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

// CloseWrite tells the other end that nothing more comes.
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
