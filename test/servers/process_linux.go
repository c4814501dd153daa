package servers

import "syscall"

// attributes has the kernel kill the server if the test's process dies without
// cleaning up, as it does when `go test` runs out of time.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
