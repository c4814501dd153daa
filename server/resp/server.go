package resp

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/standby"
)

// Options are what a server may be given. The zero Options are good for a test.
type Options struct {
	// Token is what callers show with AUTH or HELLO before they may ask. Empty
	// means that anybody may.
	Token string
	// SideBySide has the checks of one pipeline decided at the same time rather
	// than one after another: for deciders that ask a store across a network.
	SideBySide bool
	// Instant says that the decider never waits for anybody, as one over a memory store. Then
	// connections that wait for their next command have no goroutine; see package standby.
	Instant bool
	// MaxConnections is how many connections there may be at the same time. Zero
	// means DefaultMaxConnections.
	MaxConnections int
	// Permits has the permits of rules that bound what is in progress over all processes.
	// Nil means that there are none.
	Permits *decide.Permits
	// Version is what HELLO and INFO call this build.
	Version string
	// Logger takes panics and refused connections, and with AccessLog every
	// command. Nil means none.
	Logger *slog.Logger
	// AccessLog has every command logged: its name, whether it failed, the time it
	// took and the address; never an argument, which may be a key.
	AccessLog bool
	// Span begins the span of a command that asks for a decision or a permit, and returns its
	// context and what ends it. The name is the command's, such as "HG.CHECK". Nil means that
	// there are no traces. Redis's protocol has no place for the trace of the caller.
	Span func(ctx context.Context, name string) (context.Context, func())

	// times stand in for the default ones in tests.
	times times
}

// DefaultMaxConnections is how many connections there may be unless told
// otherwise.
const DefaultMaxConnections = 10_000

// times bound what a connection may wait for.
type times struct {
	idle      time.Duration // for the next command
	handshake time.Duration // for TLS, and for the token
	read      time.Duration // for the rest of a command
	write     time.Duration // for answers to be taken
	last      time.Duration // for commands that are on their way at shutdown
}

// Clients keep their connections, and few of them look before they send whether
// the other end is still there: an idle connection is closed late.
var defaultTimes = times{
	idle:      30 * time.Minute,
	handshake: 10 * time.Second,
	read:      10 * time.Second,
	write:     20 * time.Second,
	last:      100 * time.Millisecond,
}

// Server answers commands. It is safe for concurrent use; make one with [New], and
// end it with Shutdown or Close.
type Server struct {
	decider   decide.Decider
	options   Options
	token     [sha256.Size]byte
	commands  []*command
	byName    map[string]*command
	texts     *decide.Texts[text]
	throttles throttles
	calls     sync.Pool     // of *call
	workers   chan struct{} // one in it for each goroutine that decides
	// newStandby is standby.New; tests put another one in its place.
	newStandby func(idle time.Duration) (*standby.Pool, error)

	ctx    context.Context // of all decisions
	cancel context.CancelFunc
	lastID atomic.Int64
	// leaving is when commands on their way cease to be waited for, in Unix
	// nanoseconds; zero while the server serves.
	leaving atomic.Int64

	mu        sync.Mutex // guards what follows, and the nc of connections
	ended     bool
	cut       bool          // Connections are not served any more.
	readied   bool          // The standby was made, or cannot be.
	standby   *standby.Pool // nil: each connection has a goroutine. Set once, before there are any.
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	refused   int64
	told      time.Time // when the log was told of a refusal last
	running   sync.WaitGroup
}

// maxWorkers bounds the goroutines that decide side by side, over all connections,
// and maxPending those of one connection.
const (
	maxWorkers = 4096
	maxPending = 128
)

// New returns a server that asks decider.
func New(decider decide.Decider, options Options) *Server {
	if options.MaxConnections == 0 {
		options.MaxConnections = DefaultMaxConnections
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.times == (times{}) {
		options.times = defaultTimes
	}
	s := &Server{
		newStandby: standby.New,

		decider:   decider,
		texts:     decide.NewTexts(newText),
		options:   options,
		token:     sha256.Sum256([]byte(options.Token)),
		workers:   make(chan struct{}, maxWorkers),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*conn]struct{}),
	}
	s.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	s.commands = slices.Concat(decisionCommands(), permitCommands())
	for _, c := range s.commands {
		c.traced = options.Span != nil
	}
	s.commands = append(s.commands, sessionCommands()...)
	s.byName = make(map[string]*command, len(s.commands))
	for _, c := range s.commands {
		s.byName[c.name] = c
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve serves the listener's connections until Shutdown or Close, and returns nil
// then.
func (s *Server) Serve(l net.Listener) error {
	if !s.listen(l) {
		return l.Close()
	}
	defer s.unlisten(l)
	const least, most = 5 * time.Millisecond, time.Second
	for pause := least; ; {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = least
			s.begin(nc)
			continue
		case s.isEnded():
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		}
		// Too many open files, as a rule: others may be closed soon.
		s.options.Logger.Warn("a connection cannot be accepted", slog.Any("error", err), slog.Duration("next_try_in", pause))
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
		}
		pause = min(2*pause, most)
	}
}

func (s *Server) listen(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.listeners[l] = struct{}{}
	if s.options.Instant && !s.readied {
		// If it fails, there is no second try: connections of the first listener read the field.
		s.readied = true
		var err error
		if s.standby, err = s.newStandby(s.options.times.idle); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			s.options.Logger.Warn("each connection has a goroutine", slog.Any("error", err))
		}
	}
	return true
}

func (s *Server) unlisten(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
	_ = l.Close() // It is closed already, unless Accept failed.
}

func (s *Server) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// begin serves a connection in a goroutine of its own, or refuses it.
func (s *Server) begin(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	full := len(s.conns) >= s.options.MaxConnections
	if s.ended || full {
		told := full && s.refuse()
		s.mu.Unlock()
		if told {
			s.options.Logger.Warn("connections are refused", slog.Int("most", s.options.MaxConnections), slog.String("from", nc.RemoteAddr().String()))
		}
		c.refuse()
		return
	}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	s.mu.Unlock()
	go c.serve()
}

// refuse counts a connection that is refused, and says whether the log should
// have it. The server is locked.
func (s *Server) refuse() bool {
	const every = 10 * time.Second
	s.refused++
	now := time.Now()
	if now.Sub(s.told) < every {
		return false
	}
	s.told = now
	return true
}

func (s *Server) forget(c *conn) {
	defer s.running.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = c.nc.Close() // The other end may be gone; there is nobody to tell.
	delete(s.conns, c)
}

// Connections is how many connections there are.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Refused is how many connections were refused because there were too many.
func (s *Server) Refused() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Shutdown closes the listeners, answers the commands that have arrived or are
// about to, and closes the connections. If ctx ends first it returns its error, and
// the rest is cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leaving.CompareAndSwap(0, time.Now().Add(s.options.times.last).UnixNano())
	s.end((*conn).wake)
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		s.cancel()
		return nil
	case <-ctx.Done():
		err := s.Close()
		<-done
		return errors.Join(ctx.Err(), err)
	}
}

// Close closes the listeners and the connections at once.
func (s *Server) Close() error {
	s.leaving.CompareAndSwap(0, 1)
	s.cancel()
	s.mu.Lock()
	s.cut = true
	s.mu.Unlock()
	s.end(func(c *conn) { _ = c.nc.Close() }) // The other end may be gone; there is nobody to tell.
	return nil
}

// end closes the listeners, and does something to all connections. Those without a goroutine get
// one.
func (s *Server) end(do func(*conn)) {
	s.mu.Lock()
	s.ended = true
	for l := range s.listeners {
		_ = l.Close() // Whatever it says, it accepts nothing more.
	}
	for c := range s.conns {
		do(c)
	}
	s.mu.Unlock()
	if s.standby != nil {
		s.standby.Close()
	}
}

// secure does the handshake of a connection with TLS, so that it is bounded.
func (s *Server) secure(nc net.Conn) error {
	t, ok := nc.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.options.times.handshake)
	defer cancel()
	return t.HandshakeContext(ctx)
}
