package resp

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/standby"
)

// Options are the settings of a server. The zero Options are good for tests.
type Options struct {
	// Token is what clients must send with AUTH or HELLO before they may send other commands. If it is
	// empty, anybody may.
	Token string
	// SideBySide has the checks of one pipeline decided concurrently rather than one after another. It
	// is for deciders that ask a store across a network.
	SideBySide bool
	// Instant says that the decider never blocks, such as one over a memory store. Connections that
	// wait for their next command then have no goroutine; see package standby.
	Instant bool
	// MaxConnections is the maximum number of connections at a time. Zero means DefaultMaxConnections.
	MaxConnections int
	// Permits serves the rules that bound what is in progress over all processes. Nil means that the
	// commands about permits fail.
	Permits *decide.Permits
	// API answers HG.POST, which carries calls of the HTTP API, and logs and traces these calls itself.
	// Nil means that the command fails.
	API http.Handler
	// InstantPath reports whether API's answers for a path are as quick as the decider's. Nil means
	// that none are.
	InstantPath func(path string) bool
	// Announce is the address (host:port) at which clients in cluster mode are told to find this
	// server. Empty means the one that they have reached.
	Announce string
	// Version is the version of the server in the answers to HELLO and INFO.
	Version string
	// Logger gets panics, refused connections and, with AccessLog, every command. Nil means no log.
	Logger *slog.Logger
	// AccessLog logs every command that API does not answer: its name, whether it failed, how long it
	// took, and the client's address. Arguments are never logged, because they may be keys.
	AccessLog bool
	// Span begins the span of a command that asks for a decision or a permit. It returns the span's
	// context and a function that ends the span. The name is the command's, such as "HG.CHECK". Nil
	// means no tracing. The caller's trace is unknown, because Redis's protocol cannot carry it.
	Span func(ctx context.Context, name string) (context.Context, func())

	// times replaces the default times in tests.
	times times
}

// DefaultMaxConnections is the maximum number of connections if Options do not set one.
const DefaultMaxConnections = 10_000

// times bound how long a connection may take.
type times struct {
	idle      time.Duration // to wait for the next command
	handshake time.Duration // for the TLS handshake, and until the token was sent
	read      time.Duration // for the rest of a command to arrive
	write     time.Duration // for the client to accept the answers
	last      time.Duration // at shutdown, to wait for commands that are still arriving
}

// Most clients keep their connections, and few check that a connection is still open before they
// use it again, so idle connections are closed late.
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
	postings  sync.Pool     // of *posting
	workers   chan struct{} // a semaphore: one element for each goroutine that decides
	work      chan *call    // to the goroutines that have nothing to decide
	idle      atomic.Int64  // how many these are
	busy      atomic.Int64  // connections whose commands are being answered
	// newStandby is standby.New, except in tests.
	newStandby func(idle time.Duration) (*standby.Pool, error)

	ctx    context.Context // for all decisions
	cancel context.CancelFunc
	lastID atomic.Int64
	// leaving is the time until which the server waits for commands that are still arriving, in Unix
	// nanoseconds. It is zero until shutdown begins.
	leaving atomic.Int64

	mu      sync.Mutex // guards what follows, and the nc of connections
	ended   bool
	cut     bool // Close was called.
	readied bool // standby was set, or making it has failed.
	// standby is set once, before there are connections. If it is nil, each connection has a
	// goroutine.
	standby       *standby.Pool
	listeners     map[net.Listener]struct{}
	conns         map[*conn]struct{}
	refused       int64
	refusalLogged time.Time // when a refusal was logged last
	running       sync.WaitGroup
}

// maxWorkers is the maximum number of goroutines that decide, over all connections, and maxPending
// the maximum of one connection. Of those without work, maxIdle are kept.
const (
	maxWorkers = 4096
	maxPending = 128
	maxIdle    = 128
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
		work:      make(chan *call),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*conn]struct{}),
	}
	s.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	s.postings.New = func() any { return &posting{header: make(http.Header)} }
	s.commands = slices.Concat(decisionCommands(), permitCommands(), postCommands())
	for _, c := range s.commands {
		c.traced = options.Span != nil && c.path == 0
	}
	s.commands = append(s.commands, sessionCommands()...)
	s.byName = make(map[string]*command, len(s.commands))
	for _, c := range s.commands {
		s.byName[c.name] = c
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve serves the listener's connections until Shutdown or Close, and then returns nil.
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
		// Usually there are too many open files. Accept may succeed again when some are closed.
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
		// After a failure it is not tried again: connections of the first listener already read the field
		// without the lock.
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
	_ = l.Close() // After Shutdown or Close, the listener is closed already.
}

func (s *Server) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// begin serves a connection in a goroutine of its own. It refuses the connection if there are too
// many, or the server has ended.
func (s *Server) begin(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	full := len(s.conns) >= s.options.MaxConnections
	if s.ended || full {
		logged := full && s.refuse()
		s.mu.Unlock()
		if logged {
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

// refuse counts a refused connection, and reports whether to log it: at most one is logged every 10
// seconds. The caller holds s.mu.
func (s *Server) refuse() bool {
	const every = 10 * time.Second
	s.refused++
	now := time.Now()
	if now.Sub(s.refusalLogged) < every {
		return false
	}
	s.refusalLogged = now
	return true
}

func (s *Server) forget(c *conn) {
	defer s.running.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = c.nc.Close() // The connection is given up anyway.
	delete(s.conns, c)
}

// Connections returns the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Refused returns how many connections were refused because there were too many.
func (s *Server) Refused() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Shutdown closes the listeners, answers the commands that have arrived or are still arriving, and
// closes the connections. If ctx ends first, Shutdown closes the remaining connections at once and
// returns ctx's error.
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

// Close closes the listeners and the connections at once. It does not wait for their goroutines,
// and returns nil.
func (s *Server) Close() error {
	s.leaving.CompareAndSwap(0, 1)
	s.cancel()
	s.mu.Lock()
	s.cut = true
	s.mu.Unlock()
	s.end(func(c *conn) { _ = c.nc.Close() }) // The connection is given up anyway.
	return nil
}

// end closes the listeners and calls do for all connections, with s.mu locked. Connections on
// standby leave it and get a goroutine.
func (s *Server) end(do func(*conn)) {
	s.mu.Lock()
	s.ended = true
	for l := range s.listeners {
		_ = l.Close() // Even if Close fails, begin refuses connections from now on.
	}
	for c := range s.conns {
		do(c)
	}
	s.mu.Unlock()
	if s.standby != nil {
		s.standby.Close()
	}
}

// secure does the TLS handshake of a connection, if it has TLS, within the time for it.
func (s *Server) secure(nc net.Conn) error {
	t, ok := nc.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.options.times.handshake)
	defer cancel()
	return t.HandshakeContext(ctx)
}
