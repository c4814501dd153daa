package keepalive

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/server/standby"
)

// Server is an [http.Server] whose connections wait on standby between plain requests. It is safe
// for concurrent use; make one with [New], and end it with Shutdown or Close.
type Server struct {
	http    *http.Server
	next    http.Handler
	instant func(path string) bool

	exchanges sync.Pool // of *exchange
	returned  returns
	opening   sync.Once
	pool      *standby.Pool // Nil: connections stay with net/http.
	running   sync.WaitGroup

	mu    sync.Mutex // guards what follows
	ended bool
	held  map[net.Conn]struct{} // Connections that are neither net/http's nor on standby; nil if the server is closed.
}

// New returns a server that serves what h would serve, and takes h over: its Handler and
// ConnContext are set. Requests of paths for which instant reports true must be answered without
// waiting for anybody, with a status that has a body, and by a handler that keeps nothing of the
// request or of the ResponseWriter when it has returned.
func New(h *http.Server, instant func(path string) bool) *Server {
	s := &Server{http: h, next: h.Handler, instant: instant, held: make(map[net.Conn]struct{})}
	s.returned.more = make(chan struct{}, 1)
	s.exchanges.New = func() any { return newExchange(h) }
	h.Handler = http.HandlerFunc(s.serveHTTP)
	h.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		c := &conn{server: s, remote: nc.RemoteAddr().String(), owed: first}
		if back, ok := nc.(*returnedConn); ok {
			c = back.of
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	return s
}

// connKey is the key of a connection's *conn in the contexts of its requests.
type connKey struct{}

// Serve serves the listener's connections until Shutdown or Close, as [http.Server.Serve] does.
func (s *Server) Serve(l net.Listener) error {
	s.opening.Do(s.open)
	return s.http.Serve(l)
}

// open makes the standby, and has net/http serve what comes back from there.
func (s *Server) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	pool, err := standby.New(s.idle())
	if err != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			s.logf("keepalive: each connection has a goroutine: %v", err)
		}
		return
	}
	s.pool = pool
	s.running.Go(func() { _ = s.http.Serve(&s.returned) }) // It ends when the server does.
}

// idle is how long a connection may wait for its next request, as net/http has it.
func (s *Server) idle() time.Duration {
	const forever = 1 << 62
	switch {
	case s.http.IdleTimeout > 0:
		return s.http.IdleTimeout
	case s.http.IdleTimeout == 0 && s.http.ReadTimeout > 0:
		return s.http.ReadTimeout
	}
	return forever
}

// logf logs where net/http does.
func (s *Server) logf(format string, args ...any) {
	to := s.http.ErrorLog
	if to == nil {
		to = slog.NewLogLogger(slog.Default().Handler(), slog.LevelError)
	}
	to.Printf(format, args...)
}

// Shutdown closes the listeners and the connections without a request, and waits for the requests
// in flight. If ctx ends first it returns its error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.end()
	if err := s.http.Shutdown(ctx); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes the listeners and the connections at once.
func (s *Server) Close() error {
	s.end()
	err := s.http.Close()
	s.mu.Lock()
	for nc := range s.held {
		_ = nc.Close() // The other end may be gone; there is nobody to tell.
	}
	s.held = nil
	s.mu.Unlock()
	s.running.Wait()
	return err
}

// end has connections that are on standby leave it.
func (s *Server) end() {
	s.mu.Lock()
	s.ended = true
	pool := s.pool
	s.mu.Unlock()
	if pool != nil {
		pool.Close()
	}
}

// begin has Shutdown and Close wait until running is told that something is done. It reports false
// if the server is closed.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		s.running.Add(1)
	}
	return s.held != nil
}

// hold has Close close a connection, too. It reports false if the server is closed already.
func (s *Server) hold(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		s.held[nc] = struct{}{}
	}
	return s.held != nil
}

// release ends hold.
func (s *Server) release(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, nc)
}

func (s *Server) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}
