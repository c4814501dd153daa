//go:build !unix

package socket

import (
	"net"
	"syscall"
)

// quick returns the connection as it is. Only on Linux is there a quicker way to use it.
func quick(c net.Conn, _ syscall.RawConn) net.Conn { return c }

// Readable reports false. A call finds out that its connection is closed.
func Readable(uintptr) bool { return false }
