package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// socket is a connection whose reads and writes never block in the kernel and so bypass Go's
// scheduler. While a single caller waits for its answer, a program is often idle, and then the
// runtime's monitor thread sleeps. Each call that the scheduler is told of wakes it, and it goes
// back to sleep after a few calls of its own. That costs a fifth of the CPU time of a decision, in
// the store and again in the door, and delays the call. To wait for the other side, socket waits as
// any connection does.
type socket struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer
}

// transfer is a read or a write that is under way.
type transfer struct {
	step func(fd uintptr) (done bool)
	b    []byte
	n    int // how many bytes of b have been read or written
	err  error
}

// quick makes a socket of a connection.
func quick(c net.Conn, raw syscall.RawConn) net.Conn {
	s := &socket{Conn: c, raw: raw}
	s.in.step, s.out.step = s.in.receive, s.out.send // once, because each would be allocated
	return s
}

// SyscallConn implements [syscall.Conn].
func (s *socket) SyscallConn() (syscall.RawConn, error) { return s.raw, nil }

// CloseWrite ends what is sent, as that of a [net.TCPConn] does.
func (s *socket) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Read implements [net.Conn].
func (s *socket) Read(b []byte) (int, error) { return s.in.run(s.raw.Read, b) }

// Write implements [net.Conn].
func (s *socket) Write(b []byte) (int, error) { return s.out.run(s.raw.Write, b) }

// run takes steps until one is the last. Before each further step, each waits until the descriptor
// is ready.
func (t *transfer) run(each func(func(fd uintptr) bool) error, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	t.b, t.n, t.err = b, 0, nil
	err := each(t.step)
	t.b = nil
	if err != nil {
		return t.n, err
	}
	return t.n, t.err
}

// receive reads what has arrived.
func (t *transfer) receive(fd uintptr) (done bool) {
	n, e := receive(fd, t.b)
	switch {
	case e == syscall.EAGAIN:
		return false
	case e != 0:
		t.err = os.NewSyscallError("read", e)
	case n == 0:
		t.err = io.EOF
	default:
		t.n = n
	}
	return true
}

// send writes as much as the socket's buffer takes.
func (t *transfer) send(fd uintptr) (done bool) {
	n, e := send(fd, t.b[t.n:])
	switch {
	case e == syscall.EAGAIN:
		return false
	case e != 0:
		t.err = os.NewSyscallError("write", e)
		return true
	}
	t.n += n
	return t.n == len(t.b)
}

// Readable reports whether a socket has something to read, has reached its end, or has failed. It
// consumes the byte that it reads.
func Readable(fd uintptr) bool {
	var one [1]byte
	_, e := receive(fd, one[:])
	return e != syscall.EAGAIN
}
