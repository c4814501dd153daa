//go:build unix && !linux

package target

import "syscall"

// readable reports whether a socket has something to read, has reached its end, or has failed. It
// consumes the byte that it reads.
func readable(fd uintptr) bool {
	var one [1]byte
	_, err := syscall.Read(int(fd), one[:])
	return err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR
}
