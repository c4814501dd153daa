package gateway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/headgate/headgate/concurrency"
	"github.com/headgate/headgate/httplimit"
)

// Server serves a gateway over HTTP/1.1 and HTTP/2. Make one with [Gateway.Server].
type Server struct {
	g    *Gateway
	http http.Server
	tls  bool
}

// maxStreams is how many requests a client may have in progress over one connection
// of HTTP/2.
const maxStreams = 250

// Server returns a server for handler, which is the gateway itself or something
// around it. With a configuration of TLS it speaks TLS, and without it cleartext of
// either version. Closing the server closes the gateway.
func (g *Gateway) Server(handler http.Handler, config *tls.Config) *Server {
	o := &g.current.Load().options
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(config == nil)
	return &Server{g: g, tls: config != nil, http: http.Server{
		Handler:           handler,
		TLSConfig:         config,
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
}

// Serve serves until Shutdown or Close, and returns [http.ErrServerClosed] then.
func (s *Server) Serve(l net.Listener) error {
	bounded := &listener{Listener: l, g: s.g}
	if s.tls {
		return s.http.ServeTLS(bounded, "", "")
	}
	return s.http.Serve(bounded)
}

// Shutdown lets the requests in progress end, until its context does. Connections
// that were upgraded are closed once they have: nobody can tell when they would end
// by themselves.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	s.g.Close()
	return err
}

// Close ends at once.
func (s *Server) Close() error {
	err := s.http.Close()
	s.g.Close()
	return err
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
		permit, ok := l.g.addresses.Acquire(key)
		if !ok {
			return nil, false
		}
		kept.permit = permit
	}
	if l.g.counts.conns.Add(1) > int64(o.Connections.Total) {
		l.g.counts.conns.Add(-1)
		kept.permit.Release()
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
	permit concurrency.Permit
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.once.Do(func() {
		c.permit.Release()
		c.g.counts.conns.Add(-1)
	})
	return c.Conn.Close()
}

// CloseWrite is what net/http asks for to end a connection in which somebody is
// still sending.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }
