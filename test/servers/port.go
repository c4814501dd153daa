package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	loopback = "127.0.0.1"

	// Ports below the range that systems hand out to outgoing connections
	// (32768 and up on Linux): a client that reconnects while a server is down
	// can then not be given the server's own port.
	firstPort = 20000
	lastPort  = 31999
)

// Port returns a port of the loopback interface on which nothing listens, for a
// program that must be told its port. On Linux no test in any process is given it
// again before the test and its subtests have ended; another program can still take it.
func Port(t testing.TB) int {
	t.Helper()
	port, release, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// Bind ties a program that is not started yet to this process: on Linux the kernel
// kills it if this process dies without cleaning up, as it does when `go test` runs
// out of time.
func Bind(cmd *exec.Cmd) { cmd.SysProcAttr = attributes() }

// freePort returns a port of the loopback interface on which nothing listens, and
// which no other test has until release is called.
func freePort() (port int, release func(), err error) {
	const tries = 100
	for range tries {
		port = firstPort + rand.IntN(lastPort-firstPort+1)
		if release, err = reserve(port); err != nil {
			continue
		}
		if err = portFree(port); err == nil {
			return port, release, nil
		}
		release()
	}
	return 0, nil, fmt.Errorf("servers: no free port among %d tried from %d to %d: %w", tries, firstPort, lastPort, err)
}

// portFree returns an error if something listens on the port.
func portFree(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("servers: port %d: %w", port, err)
	}
	return l.Close()
}

// portTaken reports whether a server that has not started wanted a port that another process had.
// Another test process has a port for a moment only while it looks whether the port is free, so the
// server's log tells as well.
func portTaken(log string, ports ...int) bool {
	return strings.Contains(log, "in use") || slices.ContainsFunc(ports, func(port int) bool { return portFree(port) != nil })
}
