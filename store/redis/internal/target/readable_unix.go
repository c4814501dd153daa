//go:build unix

package target

import "syscall"

// readable reports whether there is something to read from a socket, or its end. What it reads
// is lost.
func readable(fd uintptr) bool {
	var one [1]byte
	_, err := syscall.Read(int(fd), one[:])
	return err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR
}
