package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// pool is the servers of one upstream. It is safe for concurrent use.
type pool struct {
	Upstream
	targets []*target
	next    atomic.Uint64
	logger  *slog.Logger
	// idleTicks is how long an answer may pause.
	idleTicks int64
}

// What bounds the connections to upstream servers.
const (
	maxIdlePerTarget  = 256
	maxResponseHeader = 256 << 10
	expectWithin      = time.Second
	// A connection of HTTP/2 on which nothing comes for so long is asked whether it
	// is still there.
	pingAfter, pingWithin = 15 * time.Second, 5 * time.Second
)

// newPool makes a pool of options that were checked.
func newPool(u Upstream, ws *watchers, logger *slog.Logger) *pool {
	p := &pool{Upstream: u, logger: logger, idleTicks: ws.ticks(u.Timeouts.Idle)}
	var transports [2]*http.Transport // for all targets that are spoken to alike
	for _, text := range u.Targets {
		address, plain, _ := parseTarget(text)
		which := 0
		if plain {
			which = 1
		}
		if transports[which] == nil {
			transports[which] = newTransport(&u, ws, plain)
		}
		p.targets = append(p.targets, &target{name: text, url: address, transport: transports[which], eject: u.Eject})
	}
	return p
}

// newTransport makes what a pool speaks to its targets with; plain is HTTP/2
// without TLS.
func newTransport(u *Upstream, ws *watchers, plain bool) *http.Transport {
	idle := u.Timeouts.Idle
	dialer := net.Dialer{Timeout: u.Timeouts.Dial, KeepAlive: 30 * time.Second}
	protocols := new(http.Protocols)
	if plain {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	}
	var config *tls.Config
	if u.TLS != nil {
		config = u.TLS.Clone()
	}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, &dialError{err}
			}
			return &sending{Conn: conn, idle: idle, of: ws}, nil
		},
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    u.Timeouts.Dial,
		ResponseHeaderTimeout:  u.Timeouts.ResponseHeader,
		IdleConnTimeout:        u.Timeouts.KeepAlive,
		ExpectContinueTimeout:  expectWithin,
		MaxIdleConnsPerHost:    maxIdlePerTarget,
		MaxResponseHeaderBytes: maxResponseHeader,
		// What the client accepts is what it gets.
		DisableCompression: true,
		Protocols:          protocols,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin},
	}
}

// dialError says that there was no connection: nothing has been sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// errNoTarget says that all of a pool's targets are down, or have failed already.
var errNoTarget = errors.New("gateway: no target is up")

// pick chooses a target that is not among those tried; nil if there is none. One
// that is passed over for its failures is better than none, one that is down is
// not.
func (p *pool) pick(tried []*target) *target {
	n := uint64(len(p.targets))
	start := p.next.Add(1)
	var best, passedOver *target
	for i := range n {
		t := p.targets[(start+i)%n]
		switch {
		case t.down.Load() || len(tried) > 0 && slices.Contains(tried, t):
		case t.ejected():
			if passedOver == nil {
				passedOver = t
			}
		case p.Balance == RoundRobin:
			return t
		case best == nil || t.inFlight.Load() < best.inFlight.Load():
			best = t
		}
	}
	if best == nil {
		return passedOver
	}
	return best
}

// host is what is sent as Host to the target, given the client's.
func (p *pool) host(t *target, client string) string {
	if p.TargetHost {
		return t.url.Host
	}
	return client
}

// close drops the connections that nobody uses.
func (p *pool) close() {
	for _, t := range p.targets {
		t.transport.CloseIdleConnections()
	}
}
