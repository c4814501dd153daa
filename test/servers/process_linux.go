package servers

import (
	"fmt"
	"net"
	"syscall"
)

// attributes has the kernel kill the server if the test's process dies without
// cleaning up, as it does when `go test` runs out of time.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// reserve keeps the port from all other tests, in whatever process, until it is
// released: a server that is down has it back when it is started again. What it holds
// is a name that the kernel gives to one process at a time, and takes back when that dies.
func reserve(port int) (release func(), err error) {
	l, err := net.Listen("unix", fmt.Sprintf("@headgate-test-port-%d", port))
	if err != nil {
		return nil, fmt.Errorf("servers: port %d: %w", port, err)
	}
	return func() { _ = l.Close() }, nil // nothing is lost with it
}
