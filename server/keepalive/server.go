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
	// Connections that neither net/http nor the standby pool has; nil if the server is closed.
	held map[net.Conn]struct{}
}

// New returns a server that serves what h would serve. The server takes h over and sets its Handler
// and ConnContext.
//
// For requests to the paths for which instant reports true, the handler must not wait for anything,
// must answer with a status that allows a body, and must keep no reference to the request or the
// ResponseWriter after it returns.
func New(h *http.Server, instant func(path string) bool) *Server {
	s := &Server{http: h, next: h.Handler, instant: instant, held: make(map[net.Conn]struct{})}
	s.returned.more = make(chan struct{}, 1)
	s.exchanges.New = func() any { return newExchange(h) }
	h.Handler = http.HandlerFunc(s.serveHTTP)
	h.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		c := &conn{server: s, remote: nc.RemoteAddr().String(), penalty: first}
		if back, ok := nc.(*returnedConn); ok {
			c = back.of
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	return s
}

// connKey is the context key under which a request finds the *conn of its connection.
type connKey struct{}

// Serve serves the listener's connections until Shutdown or Close, as [http.Server.Serve] does.
func (s *Server) Serve(l net.Listener) error {
	s.opening.Do(s.open)
	return s.http.Serve(l)
}

// open makes the standby pool, and has net/http serve the connections that return from it. Without
// a pool, all connections stay with net/http.
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
	s.running.Go(func() { _ = s.http.Serve(&s.returned) }) // Serve returns when the server ends.
}

// idle returns how long a connection may wait for its next request, by the rules of net/http.
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

// logf logs to the logger that net/http uses.
func (s *Server) logf(format string, args ...any) {
	to := s.http.ErrorLog
	if to == nil {
		to = slog.NewLogLogger(slog.Default().Handler(), slog.LevelError)
	}
	to.Printf(format, args...)
}

// Shutdown closes the listeners and the idle connections, and waits for the requests in flight. If
// ctx ends first, Shutdown returns its error.
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

// Close closes the listeners and the connections at once. It waits for the handlers of requests
// that were being answered on standby.
func (s *Server) Close() error {
	s.end()
	err := s.http.Close()
	s.mu.Lock()
	for nc := range s.held {
		_ = nc.Close() // An error has no consequence: the connection is given up.
	}
	s.held = nil
	s.mu.Unlock()
	s.running.Wait()
	return err
}

// end marks the server as ended and closes the pool, so that the connections on standby leave it.
func (s *Server) end() {
	s.mu.Lock()
	s.ended = true
	pool := s.pool
	s.mu.Unlock()
	if pool != nil {
		pool.Close()
	}
}

// begin adds one to running, for which Shutdown and Close wait. It reports false, and adds nothing,
// if the server is closed.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		s.running.Add(1)
	}
	return s.held != nil
}

// hold registers a connection for Close to close. It reports false if the server is closed already.
func (s *Server) hold(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		s.held[nc] = struct{}{}
	}
	return s.held != nil
}

// release undoes hold.
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
