package resp

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"
)

const (
	// baseBuffer is what a connection reads into that sends one command at a time,
	// and keeps while it is idle.
	baseBuffer = 4 << 10
	// flushAt is the size from which answers are sent before more are made.
	flushAt = 32 << 10
)

// conn is a connection. One goroutine serves it, its own or that of the server's standby; but for
// wake, its methods are that goroutine's.
type conn struct {
	server *Server
	nc     net.Conn // Others use it while the server is locked.
	session

	buf    []byte // what has arrived and is not answered stands in buf[read:filled]
	read   int
	filled int
	small  int // how many batches in a row would have fit a smaller buffer
	parser parser
	args   []string
	out    []byte // answers that are not sent yet
	quit   bool

	onStandby bool // What is done now must not wait.
	busy      int  // how many batches are to come before the connection goes on standby

	one     call    // decides what is decided in this goroutine
	pending []*call // decide in others, in the order of their commands

	stranger  time.Time // since when the token is owed, if it is
	now       time.Time // when something arrived last
	began     time.Time // when the command began to arrive of which a part is there
	readUntil time.Time // the deadline that is set
	sendUntil time.Time // the same
}

func newConn(s *Server, nc net.Conn) *conn {
	now := time.Now()
	c := &conn{server: s, nc: nc, stranger: now, now: now}
	c.session = s.newSession()
	c.one.conn = c
	return c
}

// refuse closes a connection that is one too many. The text is Redis's own, which
// clients know.
func (c *conn) refuse() {
	// With TLS a handshake would have to come before it.
	if _, secure := c.nc.(*tls.Conn); !secure {
		// So few bytes have room in any socket.
		_ = c.nc.SetWriteDeadline(c.now.Add(time.Second))
		_, _ = c.nc.Write([]byte("-ERR max number of clients reached\r\n"))
	}
	_ = c.nc.Close()
}

// wake makes a connection that waits look whether the server is leaving. It may be
// called from any goroutine that has locked the server.
func (c *conn) wake() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// leaving is when commands that are on their way cease to be waited for, and
// whether the server is leaving at all.
func (c *conn) leaving() (until time.Time, yes bool) {
	ns := c.server.leaving.Load()
	return time.Unix(0, ns), ns != 0
}

// serve answers what comes, until nothing more is to come or the connection is on standby.
func (c *conn) serve() {
	gone := true
	defer func() {
		if gone {
			c.server.forget(c)
		}
	}()
	defer c.recovered()
	if c.server.secure(c.nc) != nil {
		return
	}
	// On standby, more may have arrived than was answered.
	if c.batch(); !c.resume() {
		return
	}
	for {
		if c.rest() {
			gone = false
			return
		}
		if !c.fill() {
			break
		}
		c.batch()
		if !c.resume() {
			return
		}
	}
	if _, leaving := c.leaving(); leaving {
		c.linger()
	}
}

// resume sends what is answered, and reports whether there is more to do.
func (c *conn) resume() bool {
	if !c.flush() {
		return false
	}
	if c.quit {
		c.linger()
	}
	return !c.quit
}

const defect = "the server has a defect, which is in its log; whether the request was charged is not known"

// recovered deals with a panic: it is the last that the connection is told.
func (c *conn) recovered() {
	if p := recover(); p != nil {
		c.server.panicked(c, p)
		for _, k := range c.pending {
			<-k.done
		}
		// What was answered before it is still whole.
		c.out = appendError(c.out, "ERR", defect)
		c.flush()
	}
}

func (s *Server) panicked(c *conn, p any) {
	s.options.Logger.LogAttrs(s.ctx, slog.LevelError, "a command caused a panic", slog.String("from", c.nc.RemoteAddr().String()),
		slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
}

// fill waits until more has arrived. It returns false if nothing will, or nothing
// in time.
func (c *conn) fill() bool {
	c.makeRoom()
	for {
		c.boundRead()
		n, err := c.nc.Read(c.buf[c.filled:])
		if n > 0 {
			c.filled += n
			c.now = time.Now()
			return true
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		c.readUntil = time.Time{}
		until, leaving := c.leaving()
		switch {
		case leaving && time.Now().Before(until):
			continue // It was woken, to wait less.
		case c.filled > 0 && c.open && !leaving:
			c.out = appendError(c.out, "ERR", "the rest of the command did not arrive within "+c.server.options.times.read.String())
			c.flush()
		}
		return false
	}
}

// makeRoom moves what has not been answered to the front of the buffer, and makes
// that as large as what comes seems to need.
func (c *conn) makeRoom() {
	const patience = 16
	left, size := c.filled-c.read, max(len(c.buf), baseBuffer)
	if c.filled < baseBuffer && left == 0 {
		c.small++
	} else {
		c.small = 0
	}
	switch {
	case c.filled == size:
		size *= 2
	case c.small >= patience:
		size = baseBuffer
	}
	if left > 0 {
		size = max(size, c.parser.need)
	}
	if size = min(size, MaxCommand); size != len(c.buf) {
		buf := make([]byte, size)
		copy(buf, c.buf[c.read:c.filled])
		c.buf = buf
	} else if c.read > 0 {
		copy(c.buf, c.buf[c.read:c.filled])
	}
	c.read, c.filled = 0, left
}

// boundRead sets the deadline of the next read. That takes about as long as a
// decision, so that one which is good enough is left as it is.
func (c *conn) boundRead() {
	times := &c.server.options.times
	var want time.Time
	slack := time.Duration(0)
	switch {
	case !c.open:
		// However it sends what: guesses, or the parts of a command.
		want = c.stranger.Add(times.handshake)
		if rest := c.began.Add(times.read); c.filled > 0 && rest.Before(want) {
			want = rest
		}
	case c.filled > 0:
		want = c.began.Add(times.read)
	default:
		want, slack = c.now.Add(times.idle), times.idle/8
	}
	if over := c.readUntil.Sub(want); over < 0 || over > slack {
		c.setReadDeadline(want.Add(slack))
	}
	// If the server has begun to leave meanwhile, its wake is overwritten.
	if until, leaving := c.leaving(); leaving && until.Before(c.readUntil) {
		c.setReadDeadline(until)
	}
}

func (c *conn) setReadDeadline(t time.Time) {
	_ = c.nc.SetReadDeadline(t) // Of a closed connection, Read says so.
	c.readUntil = t
}

// batch answers all commands that have arrived completely. What they say shares
// the memory of one string.
func (c *conn) batch() {
	from, text := 0, ""
	for full := false; c.read < c.filled && !c.quit && !full; {
		c.parser.maxBytes, c.parser.maxArguments = MaxCommand, MaxArguments
		if !c.open {
			c.parser.maxBytes, c.parser.maxArguments = strangerCommand, strangerArguments
		}
		size, err := c.parser.parse(c.buf[c.read:c.filled])
		if err != nil {
			c.join()
			c.out = appendError(c.out, "ERR", err.Error())
			c.quit = true
		}
		if size == 0 {
			break
		}
		if text == "" {
			from, text = c.read, string(c.buf[c.read:c.filled])
		}
		c.args = append(c.args[:0], c.parser.words...)
		for _, s := range c.parser.args {
			c.args = append(c.args, text[c.read-from+s.from:c.read-from+s.to])
		}
		if c.onStandby && len(c.args) > 0 && !c.instant(c.args[0]) {
			break
		}
		c.read += size
		if len(c.args) > 0 {
			c.run(c.args, c.read < c.filled)
		}
		switch {
		case len(c.out) < flushAt:
		case c.onStandby:
			full = true // To send it may take time.
		case !c.flush():
			c.quit = true
		}
	}
	c.join()
	if c.read > 0 || c.began.IsZero() {
		c.began = c.now
	}
	if c.read == c.filled {
		c.began = time.Time{}
	}
	// The text is not to live as long as the connection.
	c.one.args = c.args
	c.one.release()
}

// flush sends the answers that were made.
func (c *conn) flush() bool {
	if len(c.out) == 0 {
		return true
	}
	// As for reads, a deadline that is good enough is left.
	within := c.server.options.times.write
	if want := time.Now().Add(within); c.sendUntil.Before(want) {
		c.sendUntil = want.Add(within / 8)
		_ = c.nc.SetWriteDeadline(c.sendUntil) // Of a closed connection, Write says so.
	}
	_, err := c.nc.Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > 2*flushAt {
		c.out = nil
	}
	return err == nil
}

// linger tells the other end that nothing more comes, and lets it finish what it is
// sending, which is not read. To close the connection at once could take answers
// away from it that it has not read yet.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	const within = 500 * time.Millisecond
	_ = c.nc.SetReadDeadline(time.Now().Add(within))
	_, _ = io.Copy(io.Discard, c.nc) // It ends with the deadline, or by the other end.
}
