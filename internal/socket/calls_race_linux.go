//go:build race

package socket

import "syscall"

// The race detector knows the calls of package syscall: what is done before a message is sent comes
// before what is done when it has arrived. Raw calls would hide that from it.

func receive(fd uintptr, b []byte) (int, syscall.Errno) { return transferred(syscall.Read, fd, b) }

func send(fd uintptr, b []byte) (int, syscall.Errno) { return transferred(syscall.Write, fd, b) }

func transferred(call func(fd int, b []byte) (int, error), fd uintptr, b []byte) (int, syscall.Errno) {
	for {
		n, err := call(int(fd), b)
		e, _ := err.(syscall.Errno) //nolint:errorlint // That is what they return, and As would allocate.
		if e != syscall.EINTR {
			return n, e
		}
	}
}
