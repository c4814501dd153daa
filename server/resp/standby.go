package resp

import (
	"math"
	"net"
	"slices"
	"strings"
	"time"
)

// settled is how many batches a connection that has left standby answers in its own goroutine
// before it returns there, because the reason for leaving may recur.
const settled = 64

// rest puts the connection on standby until its next command, and reports whether it did. If so,
// the connection no longer belongs to this goroutine.
func (c *conn) rest() bool {
	pool := c.server.standby
	switch {
	case c.busy > 0:
		c.busy--
		return false
	case pool == nil, !c.open, c.queue != nil, c.read < c.filled:
		return false
	}
	c.buf, c.out, c.read, c.filled, c.small = nil, nil, 0, 0, 0
	if pool.Enter(c.nc, c) {
		return true
	}
	// The pool would refuse it again: the connection has TLS, or the server is shutting down.
	c.busy = math.MaxInt
	return false
}

// instant reports whether a command can be answered on standby. An unknown one can, with an error.
func (c *conn) instant(args []string) bool {
	cmd := c.server.find(args[0])
	if cmd != nil && 0 < cmd.path && cmd.path < len(args) && c.server.options.InstantPath != nil {
		path, _, _ := strings.Cut(args[cmd.path], "?")
		return c.server.options.InstantPath(path)
	}
	return cmd == nil || cmd.instant
}

// Arrived implements [standby.Member]. It answers the complete commands that can be answered
// without blocking.
func (c *conn) Arrived(data, out []byte) (answer []byte, stay bool) {
	c.buf, c.read, c.filled, c.out, c.onStandby = data, 0, len(data), out, true
	defer func() {
		if p := recover(); p != nil {
			c.server.panicked(c, p)
			c.out = appendError(c.out, "ERR", defect)
			c.quit = true
		}
		rest := c.buf[c.read:c.filled]
		answer, stay = c.out, len(rest) == 0 && !c.quit && c.open && c.queue == nil
		// Data and out belong to the pool and must not be kept.
		c.buf, c.out, c.onStandby = slices.Clone(rest), nil, false
		c.read, c.filled = 0, len(rest)
	}()
	c.batch()
	return nil, false
}

// Left implements [standby.Member].
func (c *conn) Left(nc net.Conn, unsent []byte) {
	s := c.server
	if nc == nil {
		s.forget(c)
		return
	}
	s.mu.Lock()
	c.nc = nc
	cut := s.cut
	s.mu.Unlock()
	if cut {
		_ = nc.Close() // The connection is given up anyway.
	}
	c.out, c.busy = unsent, settled
	c.now = time.Now()
	c.stranger, c.began = c.now, time.Time{}
	c.readUntil, c.sendUntil = time.Time{}, time.Time{}
	go c.serve()
}
