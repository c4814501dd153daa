package resp

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/headgate/headgate/server/decide"
)

// command is what a connection may be asked for.
type command struct {
	name string
	// least and most are how many arguments it takes, its name among them; a most
	// of zero is MaxArguments.
	least, most int
	// stranger says that callers may use it who have not shown the token.
	stranger bool
	// decides says that it does nothing but decide, so that others may be decided
	// at the same time.
	decides bool
	// instant says that it waits for nobody if the decider does not, and that its answer is short.
	instant bool
	traced  bool // it has a span
	run     func(k *call)
	// key is the place of the key, for clients that choose a server by it; zero if
	// there is none.
	key     int
	summary string
	params  []param
}

// param is an argument of a command, for people to read about.
type param struct {
	name, token        string
	optional, multiple bool
	of                 []param // it is a block of these
	choice             bool    // it is one of them only
}

// maxCommandName is longer than any command's name.
const maxCommandName = 24

// find returns the command of that name, in any case, or nil.
func (s *Server) find(name string) *command {
	if c := s.byName[name]; c != nil {
		return c
	}
	if len(name) > maxCommandName {
		return nil
	}
	var b [maxCommandName]byte
	for i := range len(name) {
		b[i] = upper(name[i])
	}
	return s.byName[string(b[:len(name)])]
}

// call is one command on its way.
type call struct {
	conn    *conn
	command *command
	proto   protocol
	args    []string
	out     []byte
	done    chan struct{} // has one element when a call in another goroutine is answered
	// ctx is what the command is decided with: the server's, or one with a span.
	ctx context.Context //nolint:containedctx // A call is what other servers pass as arguments.

	request decide.Request
}

// begin makes the call ready for another command.
func (k *call) begin() {
	k.request.Reset()
	k.request.Borrowed = true
}

// release forgets what the calls were about, and keeps memory of the usual size.
func (k *call) release() {
	const usual = 64
	k.begin()
	k.ctx = nil
	if cap(k.out) > usual*usual {
		k.out = nil
	}
}

// run answers a command, or has it answered until join; more says that others have
// arrived behind it.
func (c *conn) run(args []string, more bool) {
	cmd := c.server.find(args[0])
	if c.queue == nil && cmd != nil && cmd.decides && c.open && c.server.options.SideBySide && (more || len(c.pending) > 0) && c.start(cmd, args) {
		return
	}
	// Everything else is done when everything before it is done.
	c.join()
	k := &c.one
	k.command, k.proto, k.args, k.out = cmd, c.proto, args, c.out
	k.answer()
	c.out = k.out
	k.out = nil
}

// start has a command answered in another goroutine, and reports whether one was to
// be had.
func (c *conn) start(cmd *command, args []string) bool {
	if len(c.pending) == maxPending {
		c.join()
	}
	select {
	case c.server.workers <- struct{}{}:
	default:
		return false
	}
	k := c.server.calls.Get().(*call)
	k.conn, k.command, k.proto, k.out = c, cmd, c.proto, k.out[:0]
	k.args = append(k.args[:0], args...)
	c.pending = append(c.pending, k)
	go k.work()
	return true
}

// work answers the call in a goroutine of its own, which ends before join returns.
func (k *call) work() {
	defer func() {
		if p := recover(); p != nil {
			k.conn.server.panicked(k.conn, p)
			k.out = k.out[:0]
			k.fail("ERR", defect)
		}
		<-k.conn.server.workers
		k.done <- struct{}{}
	}()
	k.answer()
}

// join waits for the calls in other goroutines and takes their answers, in order.
func (c *conn) join() {
	for _, k := range c.pending {
		<-k.done
		if c.out = append(c.out, k.out...); len(c.out) >= flushAt && !c.flush() {
			c.quit = true
		}
		clear(k.args)
		k.conn = nil
		k.release()
		c.server.calls.Put(k)
	}
	clear(c.pending)
	c.pending = c.pending[:0]
}

// answer answers the call.
func (k *call) answer() {
	if !k.conn.server.options.AccessLog {
		k.dispatch()
		return
	}
	start, from := time.Now(), len(k.out)
	k.dispatch()
	name := "unknown"
	if k.command != nil {
		name = k.command.name
	}
	k.conn.server.options.Logger.LogAttrs(k.conn.server.ctx, slog.LevelInfo, "request", slog.String("command", name),
		slog.Bool("failed", len(k.out) > from && k.out[from] == '-'), slog.Duration("took", time.Since(start)), slog.String("from", k.conn.nc.RemoteAddr().String()))
}

func (k *call) dispatch() {
	k.begin()
	cmd := k.command
	switch n := len(k.args); {
	case !k.conn.open && (cmd == nil || !cmd.stranger):
		k.fail("NOAUTH", "Authentication required: AUTH TOKEN, or HELLO 3 AUTH default TOKEN")
	case cmd == nil:
		k.fail("ERR", "unknown command "+quote(k.args[0])+"; COMMAND LIST has those that there are")
	case n < cmd.least || cmd.most > 0 && n > cmd.most:
		k.fail("ERR", "wrong number of arguments for "+cmd.name+": "+strconv.Itoa(n-1)+"; write "+cmd.usage())
	case k.conn.queue != nil && !cmd.unqueued():
		k.enqueue()
		return
	default:
		k.carryOut()
		return
	}
	if k.conn.queue != nil {
		k.conn.queue.broken = true
	}
}

// carryOut does what the command says.
func (k *call) carryOut() {
	s := k.conn.server
	k.ctx = s.ctx
	if k.command.traced {
		ctx, end := s.options.Span(s.ctx, k.command.name)
		defer end()
		k.ctx = ctx
	}
	k.command.run(k)
}

// fail answers with an error.
func (k *call) fail(prefix, text string) { k.out = appendError(k.out, prefix, text) }

// quote quotes what the caller has sent for a message, and cuts what is long.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
