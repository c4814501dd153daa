//go:build unix

package gateway

import (
	"errors"
	"syscall"
)

// canPeek says that isQuiet can tell.
const canPeek = true

// isQuiet reports whether a connection is open and nothing has come on it that was not read.
func isQuiet(raw syscall.RawConn) (quiet bool) {
	var b [1]byte
	err := raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		quiet = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return quiet && err == nil
}
