// Package socket reads and writes connections with less help of Go's scheduler, for those that mostly
// wait for one short message at a time.
package socket

import (
	"net"
	"syscall"
)

// New returns a connection that reads from and writes to c in the quickest way that the system has.
// Deadlines, addresses and Close are those of c. Where there is no quicker way, or c is not a socket
// of the system, such as one with TLS, it returns c.
//
// Like any connection, it may be read, written and closed at the same time, but by only one reader
// and one writer.
func New(c net.Conn) net.Conn {
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return quick(c, raw)
		}
	}
	return c
}
