package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/httplimit"
)

// Server serves a gateway over HTTP/1.1 and HTTP/2. Make one with [Gateway.Server].
type Server struct {
	g       *Gateway
	handler http.Handler
	config  *tls.Config

	mu     sync.Mutex // guards what follows
	fronts []*front   // those with connections; the last one takes those to come
	closed bool
}

// maxStreams is how many requests a client may have in progress over one connection
// of HTTP/2.
const maxStreams = 250

// Server returns a server for handler, which is the gateway itself or something
// around it. With a configuration of TLS it speaks TLS, and without it cleartext of
// either version. Closing the server closes the gateway.
func (g *Gateway) Server(handler http.Handler, config *tls.Config) *Server {
	return &Server{g: g, handler: handler, config: config}
}

// Serve serves until Shutdown or Close, and returns [http.ErrServerClosed] then. It may
// be called once.
func (s *Server) Serve(l net.Listener) error {
	bounded := &listener{Listener: l, g: s.g}
	var first net.Conn
	for {
		f := s.newFront(bounded, first)
		if f == nil {
			closeAll(first, l)
			return http.ErrServerClosed
		}
		err := f.serve()
		if !f.replaced.Load() {
			closeAll(f.first) // It was closed before it began.
			return err
		}
		first = f.passed
	}
}

// closeAll closes what is there.
func closeAll(all ...io.Closer) {
	for _, one := range all {
		if one != nil {
			_ = one.Close()
		}
	}
}

// Shutdown lets the requests in progress end, until its context does. Connections
// that were upgraded are closed once they have: nobody can tell when they would end
// by themselves.
func (s *Server) Shutdown(ctx context.Context) error {
	return s.end(func(f *front) error { return f.http.Shutdown(ctx) })
}

// Close ends at once.
func (s *Server) Close() error {
	return s.end(func(f *front) error { return f.http.Close() })
}

// end ends all fronts at the same time, and the gateway.
func (s *Server) end(one func(*front) error) error {
	s.mu.Lock()
	s.closed = true
	fronts := slices.Clone(s.fronts)
	s.mu.Unlock()
	errs := make([]error, len(fronts))
	var all sync.WaitGroup
	for i, f := range fronts {
		all.Go(func() { errs[i] = one(f) })
	}
	all.Wait()
	s.g.Close()
	return errors.Join(errs...)
}

// front is the server of the connections that have come while the options were the
// same as far as an [http.Server] must be told of them before it serves. It is its own
// listener, which ends when a connection comes to which others apply.
type front struct {
	net.Listener
	of   *Server
	told told
	http http.Server
	open atomic.Int64 // connections, but for those that were upgraded

	first    net.Conn    // a connection that came before; only Accept touches it
	passed   net.Conn    // the connection that is the next front's
	replaced atomic.Bool // there is one
}

// told is what an [http.Server] is told.
type told struct {
	maxHeader              int
	header, response, idle time.Duration
}

func (o *Options) told() told {
	return told{o.MaxHeader, o.Clients.Header, o.Clients.Response, o.Clients.Idle}
}

// newFront returns what serves first, which may be nil, and what comes from the
// listener; nil if the server is closed.
func (s *Server) newFront(l net.Listener, first net.Conn) *front {
	o := &s.g.current.Load().options
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(s.config == nil)
	f := &front{Listener: l, of: s, told: o.told(), first: first, http: http.Server{
		TLSConfig:         s.config,
		Protocols:         protocols,
		ReadHeaderTimeout: o.Clients.Header,
		IdleTimeout:       o.Clients.Idle,
		// net/http adds 4 KiB of its own.
		MaxHeaderBytes: max(1, o.MaxHeader-4<<10),
		ErrorLog:       slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		// OPTIONS * is the upstream's to answer.
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			SendPingTimeout:      o.Clients.Idle, PingTimeout: o.Clients.Response,
			WriteByteTimeout: o.Clients.Response,
		},
	}}
	f.http.Handler, f.http.ConnState = f, f.count
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.fronts = slices.DeleteFunc(s.fronts, func(f *front) bool { return f.open.Load() == 0 })
	s.fronts = append(s.fronts, f)
	return f
}

func (f *front) serve() error {
	if f.of.config != nil {
		return f.http.ServeTLS(f, "", "")
	}
	return f.http.Serve(f)
}

func (f *front) outdated() bool { return f.told != f.of.g.current.Load().options.told() }

var errReplaced = errors.New("gateway: the server has been told something else")

// Accept implements [net.Listener].
func (f *front) Accept() (net.Conn, error) {
	if c := f.first; c != nil {
		f.first = nil
		return c, nil
	}
	c, err := f.Listener.Accept()
	if err == nil && f.outdated() {
		f.passed = c
		f.replaced.Store(true)
		return nil, errReplaced
	}
	return c, err
}

// Close implements [net.Listener]. What was taken over by another front is that one's
// to close.
func (f *front) Close() error {
	if f.replaced.Load() {
		return nil
	}
	return f.Listener.Close()
}

// count follows the connections.
func (f *front) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		f.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		f.open.Add(-1)
	}
}

// ServeHTTP has connections end after their next answer to which the options no longer
// apply. Closing those that are idle would lose requests that are on their way.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.outdated() {
		w.Header()["Connection"] = []string{"close"}
	}
	f.of.handler.ServeHTTP(w, r)
}

// listener bounds the connections that are open at the same time. One too many is
// closed: letting it wait would have all wait for those who do nothing.
type listener struct {
	net.Listener
	g *Gateway
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if kept, ok := l.keep(c); ok {
			return kept, nil
		}
		l.g.counts.refusedConn.Add(1)
		_ = c.Close()
	}
}

func (l *listener) keep(c net.Conn) (*conn, bool) {
	kept := &conn{Conn: c, g: l.g}
	o := &l.g.current.Load().options
	// They are counted even if there is no bound, as there may be one later.
	if key, ok := address(c.RemoteAddr(), o.Identity.Resolver); ok {
		permit, err := l.g.addresses.TryAcquire(context.Background(), flow.Request{Key: key})
		if err != nil {
			return nil, false
		}
		kept.permit = permit
	}
	if l.g.counts.conns.Add(1) > int64(o.Connections.Total) {
		l.g.counts.conns.Add(-1)
		kept.permit.Done(flow.Ignore)
		return nil, false
	}
	return kept, true
}

// address is what a connection is counted by, and whether it is counted at all.
func address(a net.Addr, resolver *httplimit.Resolver) (key string, counted bool) {
	if resolver.Trusts(&http.Request{RemoteAddr: a.String()}) {
		return "", false
	}
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return "", false
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		ip = netip.PrefixFrom(ip, 64).Masked().Addr()
	}
	return ip.String(), true
}

// conn is a connection that is counted until it is closed.
type conn struct {
	net.Conn
	g      *Gateway
	once   sync.Once
	permit flow.Permit
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.once.Do(func() {
		c.permit.Done(flow.Ignore)
		c.g.counts.conns.Add(-1)
	})
	return c.Conn.Close()
}

// CloseWrite is what net/http asks for to end a connection in which somebody is
// still sending.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }
