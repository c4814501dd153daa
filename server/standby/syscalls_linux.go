package standby

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below never block, except wait, so they bypass Go's scheduler. Telling the scheduler
// about a call costs as much as some of these calls. And it would hand the processor to another
// thread if a call took 20 µs, as one may on a busy machine.
//
// Sockets have calls of their own for reading and writing. They cost less than read and write, which
// first prepare for files of all kinds.

// receive reads what has arrived, at most len(b) bytes. The descriptor must be non-blocking.
func receive(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	return int(n), e
}

// send sends as much of b as the socket's buffer takes. The descriptor must be non-blocking. If the
// client is gone, send fails without a signal.
func send(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}

// poll stores the events that are ready, and returns their number.
func poll(epoll int, events []unix.EpollEvent) int {
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if e != 0 {
		return 0
	}
	return int(n)
}

// wait waits until events are ready, stores them, and returns their number. It returns 0 if a
// signal has interrupted it.
func wait(epoll int, events []unix.EpollEvent) int {
	const forever = ^uintptr(0)
	n, _, e := syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), forever, 0, 0)
	if e != 0 {
		return 0
	}
	return int(n)
}
