//go:build !unix

package target

import (
	"net"
	"syscall"
)

// newSocket returns the connection as it is. Only on Linux is there a quicker way to use it.
func newSocket(c net.Conn, _ syscall.RawConn) net.Conn { return c }

// readable reports false. A call finds out that its connection is closed.
func readable(uintptr) bool { return false }
