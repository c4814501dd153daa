package standby

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below never wait. So Go's scheduler is not told of them: to tell it costs as much as
// some of the calls, and it would hand the processor over to another thread if one of them took
// 20 µs, as it may on a busy machine.

// receive reads what has arrived.
func receive(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), e
}

// send sends as much as there is room for.
func send(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), e
}

// poll returns the events that there are.
func poll(epoll int, events []unix.EpollEvent) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	return int(n), e
}
