package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
)

// pool is the servers of one upstream. It is safe for concurrent use.
type pool struct {
	Upstream
	targets []*target
	next    atomic.Uint64
	logger  *slog.Logger
	// idleTicks is how long an answer may pause.
	idleTicks int64
	conns     *conns // to the targets
	load      *load  // nil if nothing bounds the requests that are with it
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
	p := &pool{Upstream: u, logger: logger, idleTicks: ws.ticks(u.Timeouts.Idle), conns: newConns()}
	var transports [2]*http.Transport // for all targets that are spoken to alike
	for _, text := range u.Targets {
		address, plain, _ := gatewayfile.ParseTarget(text)
		which := 0
		if plain {
			which = 1
		}
		if transports[which] == nil {
			transports[which] = newTransport(&u, ws, p.conns, plain)
		}
		p.targets = append(p.targets, &target{name: text, url: address, transport: transports[which], eject: u.Eject, condition: new(condition)})
	}
	return p
}

// newTransport makes what a pool speaks to its targets with; plain is HTTP/2
// without TLS.
func newTransport(u *Upstream, ws *watchers, conns *conns, plain bool) *http.Transport {
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
			// The transport dials on when the request is gone that it began to dial for.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(conns.until, cancel)()
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, &dialError{err}
			}
			made := &sending{Conn: conn, idle: idle, of: ws, among: conns}
			if !conns.add(made) {
				_ = conn.Close()
				return nil, &dialError{errClosed}
			}
			return made, nil
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

// adopt has the pool's targets go on in the condition that they have in a former
// pool, which is current if that was in force until now.
func (p *pool) adopt(former *pool, current bool) {
	for _, t := range p.targets {
		i := slices.IndexFunc(former.targets, func(f *target) bool { return f.name == t.name })
		if i < 0 {
			continue
		}
		t.condition = former.targets[i].condition
		if p.Health == nil {
			// Nobody would say that it is up again.
			t.down.Store(false)
		}
		if !current || p.Health == nil || former.Health == nil || p.Health.Path != former.Health.Path {
			t.looked.Store(false)
		}
	}
}

// close drops the connections that nobody uses.
func (p *pool) close() {
	for _, t := range p.targets {
		t.transport.CloseIdleConnections()
	}
}

// conns are the connections to the targets of a pool. A transport keeps some that
// have no request any more for a while yet, and may be dialing, when it is asked to
// close those that nobody uses.
type conns struct {
	until context.Context // ends with the pool
	end   context.CancelFunc

	mu   sync.Mutex // guards open
	open map[*sending]struct{}
}

func newConns() *conns {
	c := &conns{open: make(map[*sending]struct{})}
	c.until, c.end = context.WithCancel(context.Background())
	return c
}

// add reports false if there are to be no more.
func (c *conns) add(conn *sending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until.Err() != nil {
		return false
	}
	c.open[conn] = struct{}{}
	return true
}

func (c *conns) remove(conn *sending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

// close closes all of them.
func (c *conns) close() {
	c.end()
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.open))
	c.mu.Unlock()
	for _, conn := range all {
		_ = conn.Close()
	}
}
