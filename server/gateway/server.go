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
	fronts []*front   // fronts with connections; the last one gets new connections
	closed bool
}

// maxStreams is how many requests a client may have in progress on one connection of HTTP/2.
const maxStreams = 250

// Server returns a server for handler, which is the gateway itself or wraps it. With a TLS
// configuration, it uses TLS; otherwise it serves cleartext HTTP/1.1 and HTTP/2. Closing the server
// closes the gateway.
func (g *Gateway) Server(handler http.Handler, config *tls.Config) *Server {
	return &Server{g: g, handler: handler, config: config}
}

// Serve serves until Shutdown or Close, and then returns [http.ErrServerClosed]. It may be called
// once.
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
			closeAll(f.first) // the server was closed before it began
			return err
		}
		first = f.passed
	}
}

// closeAll closes everything that is not nil.
func closeAll(all ...io.Closer) {
	for _, one := range all {
		if one != nil {
			_ = one.Close()
		}
	}
}

// Shutdown waits for requests in progress until the context ends. Then it closes upgraded
// connections, because nobody knows when they would end by themselves.
func (s *Server) Shutdown(ctx context.Context) error {
	return s.end(func(f *front) error { return f.http.Shutdown(ctx) })
}

// Close closes the server at once.
func (s *Server) Close() error {
	return s.end(func(f *front) error { return f.http.Close() })
}

// end ends all fronts concurrently, and then the gateway.
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

// front is the server of all connections that came while a certain part of the options was the
// same: what an [http.Server] must know before it serves. It is its own listener, and ends when a
// connection comes after that part has changed.
type front struct {
	net.Listener
	of      *Server
	options httpOptions
	http    http.Server
	open    atomic.Int64 // the number of connections, without upgraded ones

	first    net.Conn    // a connection that came before the front; only Accept uses it
	passed   net.Conn    // the connection for the next front
	replaced atomic.Bool // there is a next front
}

// httpOptions are those that an [http.Server] takes.
type httpOptions struct {
	maxHeader              int
	header, response, idle time.Duration
}

func (o *Options) http() httpOptions {
	return httpOptions{o.MaxHeader, o.Clients.Header, o.Clients.Response, o.Clients.Idle}
}

// newFront returns a front for first, which may be nil, and for the connections of the listener. It
// returns nil if the server is closed.
func (s *Server) newFront(l net.Listener, first net.Conn) *front {
	o := &s.g.current.Load().options
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(s.config == nil)
	f := &front{Listener: l, of: s, options: o.http(), first: first, http: http.Server{
		TLSConfig:         s.config,
		Protocols:         protocols,
		ReadHeaderTimeout: o.Clients.Header,
		IdleTimeout:       o.Clients.Idle,
		// net/http adds 4 KiB to this.
		MaxHeaderBytes: max(1, o.MaxHeader-4<<10),
		ErrorLog:       slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		// The upstream answers OPTIONS *.
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

func (f *front) outdated() bool { return f.options != f.of.g.current.Load().options.http() }

var errReplaced = errors.New("gateway: the options of the server have changed")

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

// Close implements [net.Listener]. If another front has taken over the listener, that front has to
// close it.
func (f *front) Close() error {
	if f.replaced.Load() {
		return nil
	}
	return f.Listener.Close()
}

// count keeps track of the number of connections.
func (f *front) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		f.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		f.open.Add(-1)
	}
}

// ServeHTTP ends connections with outdated options after their next answer. Closing idle ones would
// lose requests that are under way.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.outdated() {
		w.Header()["Connection"] = []string{"close"}
	}
	f.of.handler.ServeHTTP(w, r)
}

// listener limits how many connections are open at the same time. It closes further connections: if
// they waited, all clients would wait for those that do nothing.
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
	// Connections are counted even without a bound, because there may be one later.
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

// address returns the key by which a connection is counted, and whether it is counted.
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

// conn is a connection that counts until it is closed.
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

// CloseWrite is called by net/http to end a connection on which the client is still sending.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }
