package resp

import (
	"math"
	"net"
	"slices"
	"time"
)

// settled is how many batches a connection that has left the standby answers by itself before it
// enters again. What made it leave may come often.
const settled = 64

// rest has the connection wait on standby for the next command, and reports whether it does. If so,
// it is not this goroutine's any more.
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
	c.busy = math.MaxInt // It would be refused again: it has TLS, or the server is leaving.
	return false
}

// instant reports whether a command can be answered on standby.
func (c *conn) instant(name string) bool {
	cmd := c.server.find(name)
	return cmd == nil || cmd.instant
}

// Arrived implements [standby.Member]. It answers the commands that are complete.
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
		// The memory is the pool's.
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
		_ = nc.Close() // The other end may be gone; there is nobody to tell.
	}
	c.out, c.busy = unsent, settled
	c.now = time.Now()
	c.stranger, c.began = c.now, time.Time{}
	c.readUntil, c.sendUntil = time.Time{}, time.Time{}
	go c.serve()
}
