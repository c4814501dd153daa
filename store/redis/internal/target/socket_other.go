//go:build !linux

package target

import (
	"net"
	"syscall"
)

// newSocket returns the connection as it is. Only on Linux is there a quicker way to use it.
func newSocket(c net.Conn, _ syscall.RawConn) net.Conn { return c }
