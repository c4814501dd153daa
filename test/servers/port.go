package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const (
	loopback = "127.0.0.1"

	// Ports below the range that systems hand out to outgoing connections
	// (32768 and up on Linux): a client that reconnects while a server is down
	// can then not be given the server's own port.
	firstPort = 20000
	lastPort  = 31999
)

// freePort returns a port of the loopback interface on which nothing listens.
func freePort() (int, error) {
	const tries = 100
	var last error
	for range tries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if last = portFree(port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("servers: no free port among %d tried from %d to %d: %w", tries, firstPort, lastPort, last)
}

// portFree returns an error if something listens on the port.
func portFree(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("servers: port %d: %w", port, err)
	}
	return l.Close()
}
