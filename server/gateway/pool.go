package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit/outbound"
)

// pool has the servers of one upstream. It is safe for concurrent use.
type pool struct {
	gatewayfile.Upstream
	targets []*target
	next    atomic.Uint64
	logger  *slog.Logger
	// idleTicks is the longest pause in an answer, in ticks.
	idleTicks int64
	conns     *conns // to the targets
	load      *load  // nil if there is no limit for requests in progress
}

// The bounds of connections to upstream servers.
const (
	maxIdlePerTarget  = 256 // of inline, and of its transport
	maxResponseHeader = 256 << 10
	expectWithin      = time.Second
	// If nothing comes on a connection of HTTP/2 for pingAfter, the transport sends a ping that
	// must be answered within pingWithin.
	pingAfter, pingWithin = 15 * time.Second, 5 * time.Second
)

// newPool makes a pool from options that were checked.
func newPool(u gatewayfile.Upstream, ws *watchers, o *Options) *pool {
	p := &pool{Upstream: u, logger: o.Logger, idleTicks: ws.ticks(u.Timeouts.Idle), conns: newConns()}
	var transports [2]*inline // one for all targets with the same protocol
	var senders [2]http.RoundTripper
	for _, text := range u.Targets {
		address, plain, _ := gatewayfile.ParseTarget(text)
		which := 0
		if plain {
			which = 1
		}
		if transports[which] == nil {
			transports[which] = &inline{transport: newTransport(&u, ws, p.conns, plain), multiplexed: plain, logger: o.Logger, idle: make(map[string][]*inlineConn)}
			senders[which] = transports[which]
			if u.LLM != nil && u.LLM.Heed {
				senders[which] = heeding(transports[which], o)
			}
		}
		p.targets = append(p.targets, &target{name: text, url: address, transport: transports[which], sender: senders[which], eject: u.Eject, condition: new(condition)})
	}
	return p
}

// heeding makes calls wait, up to MaxDelay, while the provider says that its own limits are exceeded. It holds for
// all targets, because the provider's limits are those of a key.
func heeding(base http.RoundTripper, o *Options) http.RoundTripper {
	// It keeps no limits of its own, and its settings are constants within their bounds.
	t, _ := outbound.New(nil, base, outbound.Config{Tries: 1, MaxWait: o.MaxDelay, Partner: func(*http.Request) string { return "" }})
	return t
}

// newTransport makes the transport for a pool's targets. plain means HTTP/2 without TLS.
func newTransport(u *gatewayfile.Upstream, ws *watchers, conns *conns, plain bool) *http.Transport {
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
			// The transport continues to dial after the request for which it began to dial has
			// ended.
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
		// The answer stays in the encoding that the client has asked for.
		DisableCompression: true,
		Protocols:          protocols,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin},
	}
}

// dialError says that there was no connection, so nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// errNoTarget says that all targets of a pool are down or have failed for this request.
var errNoTarget = errors.New("gateway: no target is up")

// pick chooses a target that is not in tried, or returns nil. It uses an ejected target if there is
// no other, but never one that is down.
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
		case p.Balance == gatewayfile.RoundRobin:
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

// host returns the Host to send to the target, given the client's.
func (p *pool) host(t *target, client string) string {
	if p.TargetHost {
		return t.url.Host
	}
	return client
}

// adopt makes the pool's targets keep the condition that they have in a former pool. current says
// that the former pool was in force until now.
func (p *pool) adopt(former *pool, current bool) {
	for _, t := range p.targets {
		i := slices.IndexFunc(former.targets, func(f *target) bool { return f.name == t.name })
		if i < 0 {
			continue
		}
		t.condition = former.targets[i].condition
		if p.Health == nil {
			// Without health checks, nothing would mark the target as up again.
			t.down.Store(false)
		}
		if !current || p.Health == nil || former.Health == nil || p.Health.Path != former.Health.Path {
			t.looked.Store(false)
		}
	}
}

// close closes the connections that nobody uses.
func (p *pool) close() {
	for _, t := range p.targets {
		t.transport.close()
	}
}

// conns are the connections to the targets of a pool. When a transport is asked to close idle
// connections, it may still be dialing, or keep some for a while whose request has just ended. So
// conns tracks them.
type conns struct {
	until context.Context // ends when the pool is closed
	end   context.CancelFunc

	mu   sync.Mutex // guards open
	open map[*sending]struct{}
}

func newConns() *conns {
	c := &conns{open: make(map[*sending]struct{})}
	c.until, c.end = context.WithCancel(context.Background())
	return c
}

// add adds a connection. It returns false if the pool is closed.
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

// target is one server of a pool. It is safe for concurrent use.
type target struct {
	name      string // as in the options
	url       *url.URL
	transport *inline
	sender    http.RoundTripper // sends requests over the transport
	eject     gatewayfile.Eject
	*condition
}

// condition is the state of a target and its counters. It is kept when the options change, if the
// target stays.
type condition struct {
	inFlight atomic.Int64
	// requests and failures count since the start.
	requests, failures atomic.Int64
	// down is the result of health checks. looked says whether there were any.
	down, looked atomic.Bool

	// inRow counts the failures since the last answer. ejections counts how often the target was
	// ejected since then.
	inRow, ejections atomic.Int32
	// until is the time until which the target is ejected, in nanoseconds since 1970.
	until atomic.Int64
}

// ejected reports whether requests avoid the target because of its failures.
func (t *target) ejected() bool {
	until := t.until.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// answered records that the target has answered.
func (t *target) answered() {
	// Loads do not make processors compete for the cache line, but stores do.
	if t.inRow.Load() != 0 {
		t.inRow.Store(0)
	}
	if t.ejections.Load() != 0 {
		t.ejections.Store(0)
		t.until.Store(0)
	}
}

// failed records that the target has not answered. It returns for how long the target is ejected
// from now on, or zero, and whether this is the first failure since an answer.
func (t *target) failed() (ejected time.Duration, first bool) {
	t.failures.Add(1)
	now, until := time.Now(), t.until.Load()
	inRow := int(t.inRow.Add(1))
	first = inRow == 1
	if inRow < t.eject.After || now.UnixNano() < until {
		return 0, first
	}
	// After that time, the next request tries the target again. One more failure then ejects it
	// again.
	d := min(t.eject.For<<min(t.ejections.Load(), 15), max(gatewayfile.MaxEject, t.eject.For))
	if !t.until.CompareAndSwap(until, now.Add(d).UnixNano()) {
		return 0, first
	}
	t.ejections.Add(1)
	return d, first
}

// watch checks the health of a target regularly until ctx ends.
func (p *pool) watch(ctx context.Context, t *target) {
	ticker := time.NewTicker(p.Health.Every)
	defer ticker.Stop()
	inRow, first := 0, !t.looked.Load()
	for {
		err := p.look(ctx, t)
		if ctx.Err() != nil {
			return
		}
		// The number of checks in a row that contradict the present state counts.
		if (err == nil) != t.down.Load() {
			inRow = 0
		} else if inRow++; first || err == nil && inRow >= p.Health.UpAfter || err != nil && inRow >= p.Health.DownAfter {
			inRow = 0
			t.down.Store(err != nil)
			if err != nil {
				p.logger.ErrorContext(ctx, "a target is down", slog.String("upstream", p.Name), slog.String("target", t.name), slog.Any("error", err))
			} else {
				p.logger.InfoContext(ctx, "a target is up", slog.String("upstream", p.Name), slog.String("target", t.name))
			}
		}
		first = false
		t.looked.Store(true)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// maxLook is how much of the answer to a health check is read, so that the connection can be
// reused.
const maxLook = 64 << 10

// look checks a target once.
func (p *pool) look(ctx context.Context, t *target) error {
	ctx, cancel := context.WithTimeout(ctx, p.Health.Timeout)
	defer cancel()
	path, err := url.Parse(p.Health.Path)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url.ResolveReference(path).String(), http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "headgate-health")
	res, err := t.transport.RoundTrip(r)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("no answer within %v", p.Health.Timeout)
		}
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxLook))
	if res.StatusCode < 200 || res.StatusCode > 399 {
		return fmt.Errorf("%s is answered with %s", p.Health.Path, res.Status)
	}
	return nil
}
