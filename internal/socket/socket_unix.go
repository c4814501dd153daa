//go:build unix && !linux

package socket

import (
	"net"
	"syscall"
)

// quick returns the connection as it is. Only on Linux is there a quicker way to use it.
func quick(c net.Conn, _ syscall.RawConn) net.Conn { return c }

// Readable reports whether a socket has something to read, has reached its end, or has failed. It
// consumes the byte that it reads.
func Readable(fd uintptr) bool {
	var one [1]byte
	_, err := syscall.Read(int(fd), one[:])
	return err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR
}
