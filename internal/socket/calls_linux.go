//go:build !race

package socket

import (
	"syscall"
	"unsafe"
)

// receive reads what has arrived, at most len(b) bytes. The descriptor must be non-blocking.
func receive(fd uintptr, b []byte) (int, syscall.Errno) { return transferred(syscall.SYS_READ, fd, b) }

// send sends as much of b as the socket's buffer takes. The descriptor must be non-blocking.
func send(fd uintptr, b []byte) (int, syscall.Errno) { return transferred(syscall.SYS_WRITE, fd, b) }

func transferred(call, fd uintptr, b []byte) (int, syscall.Errno) {
	for {
		n, _, e := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if e != syscall.EINTR {
			return int(n), e
		}
	}
}
