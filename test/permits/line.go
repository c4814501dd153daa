package permits

import (
	"net"
	"sync"
	"testing"
)

// Line is the network between one process and the store.
type Line struct {
	to  string
	l   net.Listener
	all sync.WaitGroup

	mu     sync.Mutex // guards what follows
	silent bool       // bytes are lost
	closed bool
	open   map[net.Conn]bool
}

// NewLine returns a line to a server, which is there until the test ends.
func NewLine(t testing.TB, to string) *Line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	line := &Line{to: to, l: l, open: map[net.Conn]bool{}}
	line.all.Go(line.serve)
	t.Cleanup(func() {
		_ = l.Close()
		line.mu.Lock()
		line.closed = true
		line.mu.Unlock()
		line.Reset()
		line.all.Wait()
	})
	return line
}

// Addr is where the process finds the server.
func (n *Line) Addr() string { return n.l.Addr().String() }

func (n *Line) serve() {
	for {
		c, err := n.l.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", n.to)
		if err != nil || !n.keep(c, up) {
			_ = c.Close()
			continue
		}
		n.all.Go(func() { n.forward(c, up) })
		n.all.Go(func() { n.forward(up, c) })
	}
}

func (n *Line) keep(all ...net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range all {
		if n.closed {
			_ = c.Close()
		} else {
			n.open[c] = true
		}
	}
	return !n.closed
}

func (n *Line) forward(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		k, err := from.Read(buffer)
		n.mu.Lock()
		lost := n.silent
		n.mu.Unlock()
		if k > 0 && !lost {
			if _, err := to.Write(buffer[:k]); err != nil {
				return
			}
		}
		if err != nil {
			n.mu.Lock()
			delete(n.open, from)
			n.mu.Unlock()
			return
		}
	}
}

// Cut loses all bytes from now on, and closes nothing.
func (n *Line) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = true
}

// Mend carries bytes again. Connections that have lost some are closed.
func (n *Line) Mend() {
	n.Reset()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = false
}

// Reset closes all connections.
func (n *Line) Reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.open {
		_ = c.Close()
		delete(n.open, c)
	}
}
