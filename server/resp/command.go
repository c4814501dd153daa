package resp

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/headgate/headgate/server/decide"
)

// command is one command of the protocol.
type command struct {
	name string
	// least and most bound the number of arguments, including the name. A most of zero means
	// MaxArguments.
	least, most int
	// stranger says that clients may send it before they have sent the token.
	stranger bool
	// decides says that it only asks for a decision, so that it may run concurrently with others.
	decides bool
	// instant says that it blocks only if the decider does, and that its answer is short.
	instant bool
	traced  bool // It has a span.
	// path is the position of an HTTP API's path among the arguments. The API itself logs and traces
	// such calls. It is zero for other commands.
	path int
	run  func(k *call)
	// key is the position of the key among the arguments, for clients that choose a server by key. It
	// is zero if there is no key.
	key     int
	summary string
	params  []param
}

// param is an argument of a command, as the command's documentation shows it.
type param struct {
	name, token        string
	optional, multiple bool
	of                 []param // It consists of these.
	choice             bool    // It is only one of them.
}

// maxCommandName is at least the length of the longest command name.
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

// call is one command that is being answered.
type call struct {
	conn    *conn
	command *command
	proto   protocol
	args    []string
	out     []byte
	done    chan struct{} // gets an element when another goroutine has answered the call
	logged  bool          // It needs no record: it waits for EXEC, or the HTTP API has logged it.
	// ctx is the context for the command: the server's, or one with a span.
	ctx context.Context //nolint:containedctx // A call stands for the arguments of a function.

	request decide.Request
}

// begin makes the call ready for another command.
func (k *call) begin() {
	k.request.Reset()
	k.request.Borrowed = true
	k.logged = false
}

// release drops references to the command's data, and keeps buffers of the usual size.
func (k *call) release() {
	const usual = 64
	k.begin()
	k.ctx = nil
	if cap(k.out) > usual*usual {
		k.out = nil
	}
}

// run answers a command, or starts a goroutine whose answer join collects. more says that further
// commands have arrived behind it.
func (c *conn) run(args []string, more bool) {
	cmd := c.server.find(args[0])
	if c.queue == nil && cmd != nil && cmd.decides && c.open && c.server.options.SideBySide && (more || len(c.pending) > 0) && c.start(cmd, args) {
		return
	}
	// Every other command runs after all earlier ones.
	c.join()
	k := &c.one
	k.command, k.proto, k.args, k.out = cmd, c.proto, args, c.out
	k.answer()
	c.out = k.out
	k.out = nil
}

// start has another goroutine answer the command. It reports false if as many as there may be are
// busy.
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
	select {
	case c.server.work <- k:
	default:
		go c.server.worker(k)
	}
	return true
}

// worker answers calls in its goroutine, first k and then others as they come. A new goroutine for
// each call would have to grow its stack for each.
func (s *Server) worker(k *call) {
	for {
		k.work()
		if s.idle.Add(1) > maxIdle {
			s.idle.Add(-1)
			return
		}
		select {
		case k = <-s.work:
			s.idle.Add(-1)
		case <-s.ctx.Done():
			s.idle.Add(-1)
			return
		}
	}
}

// work answers the call, which is no longer used here when join returns.
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

// join waits for the calls in other goroutines, and appends their answers in order.
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

// answer runs the call.
func (k *call) answer() { k.record((*call).dispatch) }

// record does something for the command and, with AccessLog, logs the command once.
func (k *call) record(do func(k *call)) {
	if !k.conn.server.options.AccessLog {
		do(k)
		return
	}
	name, start, from := "unknown", time.Now(), len(k.out)
	if k.command != nil {
		name = k.command.name
	}
	do(k)
	if k.logged {
		return
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

// carryOut runs the command, in a span if it is traced.
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

// quote quotes a client's text for a message, shortened to 64 bytes.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
