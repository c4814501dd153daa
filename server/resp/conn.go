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

	"github.com/headgate/headgate/internal/socket"
)

const (
	// baseBuffer is the initial size of a connection's read buffer, in bytes. makeRoom adapts the size
	// to what arrives.
	baseBuffer = 4 << 10
	// flushAt is the size of the pending answers, in bytes, from which they are sent before the next
	// command is answered.
	flushAt = 32 << 10
)

// conn is a client's connection. One goroutine at a time serves it: its own, or that of the
// server's standby pool. All methods except wake may be called only in that goroutine.
type conn struct {
	server *Server
	nc     net.Conn // Other goroutines use it with the server locked.
	quick  net.Conn // nc, for times when no other connection is busy; nil if the server has standby
	session

	buf    []byte // buf[read:filled] has arrived and is not answered yet
	read   int
	filled int
	small  int // successive batches that would have fit a smaller buffer
	parser parser
	args   []string
	out    []byte // answers that are not sent yet
	quit   bool

	onStandby bool // The standby pool's goroutine runs the commands, which must not block.
	busy      int  // how many more batches to answer before the connection goes on standby

	one     call    // the call that this goroutine runs
	pending []*call // calls that other goroutines run, in the order of their commands

	stranger  time.Time // if !open: since when the client has owed the token
	now       time.Time // when data arrived last
	began     time.Time // when the incomplete command began to arrive; zero if there is none
	readUntil time.Time // the read deadline that is set
	sendUntil time.Time // the write deadline that is set
	sent      time.Time // when answers were sent last
}

func newConn(s *Server, nc net.Conn) *conn {
	now := time.Now()
	c := &conn{server: s, nc: nc, stranger: now, now: now}
	if s.standby == nil {
		c.quick = socket.New(nc)
	}
	c.session = s.newSession()
	c.one.conn = c
	return c
}

// refuse closes a connection that is one too many. It sends Redis's own error text, which clients
// know.
func (c *conn) refuse() {
	// With TLS, the text could be sent only after a handshake.
	if _, secure := c.nc.(*tls.Conn); !secure {
		// So few bytes always fit into the socket's buffer.
		_ = c.nc.SetWriteDeadline(c.now.Add(time.Second))
		_, _ = c.nc.Write([]byte("-ERR max number of clients reached\r\n"))
	}
	_ = c.nc.Close()
}

// wake interrupts a connection that waits for data, so that it notices the shutdown. Any goroutine
// that has locked the server may call it.
func (c *conn) wake() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// leaving reports whether the server is shutting down, and until when it waits for commands that
// are still arriving.
func (c *conn) leaving() (until time.Time, yes bool) {
	ns := c.server.leaving.Load()
	return time.Unix(0, ns), ns != 0
}

// serve answers commands until the connection is finished or goes on standby.
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
	// After standby, some data may have arrived that is not answered yet.
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
		if !c.work() {
			return
		}
	}
	if _, leaving := c.leaving(); leaving {
		c.linger()
	}
}

// work answers what has arrived, and reports whether the connection goes on.
func (c *conn) work() bool {
	c.server.busy.Add(1)
	defer c.server.busy.Add(-1)
	c.batch()
	return c.resume()
}

// resume sends the pending answers, and reports whether the connection goes on.
func (c *conn) resume() bool {
	if !c.flush() {
		return false
	}
	if c.quit {
		c.linger()
	}
	if c.read > 0 && c.read < c.filled {
		c.began = time.Now() // The client may have taken its time to read the answers.
	}
	return !c.quit
}

const defect = "the server has a defect, which is in its log; whether the request was charged is not known"

// recovered handles a panic: it sends an error as the connection's last answer.
func (c *conn) recovered() {
	if p := recover(); p != nil {
		c.server.panicked(c, p)
		for _, k := range c.pending {
			<-k.done
		}
		// The answers to the commands before are complete.
		c.out = appendError(c.out, "ERR", defect)
		c.flush()
	}
}

func (s *Server) panicked(c *conn, p any) {
	s.options.Logger.LogAttrs(s.ctx, slog.LevelError, "a command caused a panic", slog.String("from", c.nc.RemoteAddr().String()),
		slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
}

// fill waits for more data and reads it. It returns false if no more will come, or none came in
// time.
func (c *conn) fill() bool {
	c.makeRoom()
	for {
		c.boundRead()
		n, err := c.way(0).Read(c.buf[c.filled:])
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
			continue // wake interrupted the read; the deadline is earlier now.
		case c.filled > 0 && c.open && !leaving:
			c.out = appendError(c.out, "ERR", "the rest of the command did not arrive within "+c.server.options.times.read.String())
			c.flush()
		}
		return false
	}
}

// way returns quick if at most so many connections are busy, and otherwise nc. With many, a thread that
// the kernel holds up in a call of quick would hold up others.
func (c *conn) way(most int64) net.Conn {
	if c.quick == nil || c.server.busy.Load() > most {
		return c.nc
	}
	return c.quick
}

// makeRoom moves the data that is not answered yet to the front of the buffer. It doubles a full
// buffer, and shrinks one that was too large 16 times in a row.
func (c *conn) makeRoom() {
	const shrinkAfter = 16
	left, size := c.filled-c.read, max(len(c.buf), baseBuffer)
	if c.filled < baseBuffer && left == 0 {
		c.small++
	} else {
		c.small = 0
	}
	switch {
	case c.filled == size:
		size *= 2
	case c.small >= shrinkAfter:
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

// boundRead sets the deadline of the next read. Setting a deadline takes about as long as a
// decision, so one that is close enough is kept.
func (c *conn) boundRead() {
	times := &c.server.options.times
	var want time.Time
	slack := time.Duration(0)
	switch {
	case !c.open:
		// This bounds the time whatever the client sends: wrong tokens, or a command in small pieces.
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
	// If a shutdown has begun meanwhile, the new deadline has overwritten that of wake.
	if until, leaving := c.leaving(); leaving && until.Before(c.readUntil) {
		c.setReadDeadline(until)
	}
}

func (c *conn) setReadDeadline(t time.Time) {
	_ = c.nc.SetReadDeadline(t) // If it fails, so does Read.
	c.readUntil = t
}

// batch answers all commands that have arrived completely. Their arguments share the memory of one
// string.
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
		if c.onStandby && len(c.args) > 0 && !c.instant(c.args) {
			break
		}
		c.read += size
		if len(c.args) > 0 {
			c.run(c.args, c.read < c.filled)
		}
		switch {
		case len(c.out) < flushAt:
		case c.onStandby:
			full = true // Sending might block.
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
	// Release the text, which would otherwise live as long as the connection.
	c.one.args = c.args
	c.one.release()
}

// flush sends the pending answers. It returns false if that fails.
func (c *conn) flush() bool {
	if len(c.out) == 0 {
		return true
	}
	// As in boundRead, a deadline that is close enough is kept.
	within := c.server.options.times.write
	c.sent = time.Now()
	if want := c.sent.Add(within); c.sendUntil.Before(want) {
		c.sendUntil = want.Add(within / 8)
		_ = c.nc.SetWriteDeadline(c.sendUntil) // If it fails, so does Write.
	}
	_, err := c.way(1).Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > 2*flushAt {
		c.out = nil
	}
	return err == nil
}

// linger closes the sending side, then reads and discards what the client is still sending until
// the client closes. Closing the connection at once could discard answers that the client has not
// read yet. Clients close connections in a pool when they need one, so those on which nothing was
// answered of late would only hold up the shutdown.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	const within = 500 * time.Millisecond
	_ = c.nc.SetReadDeadline(c.sent.Add(within))
	_, _ = io.Copy(io.Discard, c.nc) // It ends at the deadline, or when the client closes.
}
