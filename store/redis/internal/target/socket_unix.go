//go:build unix && !linux

package target

import (
	"net"
	"syscall"
)

// newSocket returns the connection as it is. Only on Linux is there a quicker way to use it.
func newSocket(c net.Conn, _ syscall.RawConn) net.Conn { return c }

// readable reports whether a socket has something to read, has reached its end, or has failed. It
// consumes the byte that it reads.
func readable(fd uintptr) bool {
	var one [1]byte
	_, err := syscall.Read(int(fd), one[:])
	return err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR
}
