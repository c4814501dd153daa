package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/httplimit"
)

// The headers by which proxies tell of the client.
const (
	forwardedFor   = "X-Forwarded-For"
	forwardedHost  = "X-Forwarded-Host"
	forwardedProto = "X-Forwarded-Proto"
	forwarded      = "Forwarded"
	realIP         = "X-Real-Ip"
)

// onlyTrusted are further headers that servers believe: those of proxies about the
// client, and those that exchange the path, which would lead past the rules for it.
// They are taken off what does not come from a trusted proxy.
var onlyTrusted = []string{
	"X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server", "X-Forwarded-Scheme", "X-Forwarded-Ssl", "X-Forwarded-Uri",
	"X-Forwarded-Method", "X-Original-Url", "X-Rewrite-Url", "X-Client-Ip", "True-Client-Ip", "X-Cluster-Client-Ip",
}

// rewrite makes the request that goes to the upstream server; it is the proxy's
// Rewrite. Which server that is is found later, as one may fail.
func (x *exchange) rewrite(p *httputil.ProxyRequest) {
	out := p.Out
	// Nothing here looks into the query, so that it may be what it is.
	out.URL.RawQuery = p.In.URL.RawQuery
	if out.Body != nil {
		x.body = newBody(p.In, out.Body, x.w.control, &x.g.options.Clients, x.route.maxBody)
		out.Body = x.body
	}
	x.forward(out.Header)
	for _, change := range x.route.request {
		x.change(out.Header, change)
	}
}

// forward tells the upstream server of the client. What a client says of itself
// stays only if it comes from a proxy that is believed.
func (x *exchange) forward(h http.Header) {
	in := x.r.Header
	peer, _, err := net.SplitHostPort(x.r.RemoteAddr)
	if err != nil {
		peer = "" // a Unix socket
	}
	proto := "http"
	if x.r.TLS != nil {
		proto = "https"
	}
	host := x.r.Host
	source := string(x.g.options.Identity.Resolver.Source())
	list := peer
	if x.trusted {
		if prior := in[forwardedFor]; len(prior) > 0 {
			list = joined(prior, peer)
		}
		if v := firstValue(in, forwardedHost); v != "" {
			host = v
		}
		if v := firstValue(in, forwardedProto); v != "" {
			proto = v
		}
	} else {
		for _, name := range onlyTrusted {
			delete(h, name)
		}
		for _, name := range x.g.options.Identity.Trusted {
			delete(h, name)
		}
		delete(h, source)
	}
	if list != "" {
		h[forwardedFor] = []string{list}
	}
	h[forwardedHost] = []string{host}
	h[forwardedProto] = []string{proto}
	delete(h, realIP)
	if ip := x.clientIP(); ip != "" {
		h[realIP] = []string{ip}
	}
	if source == forwarded && peer != "" {
		node := "for=" + peer
		if strings.Contains(peer, ":") {
			node = `for="[` + peer + `]"`
		}
		node += ";proto=" + proto
		if x.trusted {
			node = joined(in[forwarded], node)
		}
		h[forwarded] = []string{node}
	}
}

// joined is a list that a proxy adds itself to.
func joined(list []string, last string) string {
	if last != "" {
		list = append(list[:len(list):len(list)], last)
	}
	return strings.Join(list, ", ")
}

// change carries out a change of headers.
func (x *exchange) change(h http.Header, c *Headers) {
	for _, name := range c.Remove {
		delete(h, name)
	}
	for i := range c.Set {
		s := &c.Set[i]
		value := s.Value
		if s.Entry != "" {
			value, _ = x.facts.Get(s.Entry)
			// A token may hold what a header cannot.
			if value == "" || !isHeaderValue(value) {
				delete(h, s.Name)
				continue
			}
		}
		h[s.Name] = []string{value}
	}
}

// errStalled says that an answer has paused for too long.
var errStalled = errors.New("gateway: the upstream server's answer pauses for too long")

// RoundTrip sends the request to a server of the route's pool. If there was no
// connection to it, nothing was sent, and another one is tried; if the connection
// broke before there was an answer, only a request that changes nothing is sent
// again, once.
func (x *exchange) RoundTrip(out *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(out.Context())
	x.cancel = cancel
	p := x.route.pool
	client := out.Host
	var tried []*target
	var last error
	for again := false; ; again = true {
		t := p.pick(tried)
		if t == nil {
			if last == nil {
				last = errNoTarget
			}
			return nil, last
		}
		x.enterTarget(t)
		sent := out.WithContext(ctx)
		u := *out.URL
		u.Scheme, u.Host = t.url.Scheme, t.url.Host
		sent.URL, sent.Host = &u, p.host(t, client)
		res, err := t.transport.RoundTrip(sent)
		if err == nil {
			t.answered()
			return res, nil
		}
		if ctx.Err() != nil || x.clientFailure() != nil {
			return nil, err // It is not the server that failed.
		}
		x.note(t, err)
		if !x.mayRepeat(out, err, again) {
			return nil, err
		}
		tried, last = append(tried, t), err
	}
}

// enterTarget counts the request as being with the target.
func (x *exchange) enterTarget(t *target) {
	if x.target != nil {
		x.target.inFlight.Add(-1)
	}
	x.target = t
	t.inFlight.Add(1)
	t.requests.Add(1)
}

// note notes that a target has failed.
func (x *exchange) note(t *target, err error) {
	logger := x.g.options.Logger
	where := []slog.Attr{slog.String("upstream", x.route.pool.Name), slog.String("target", t.name), slog.Any("error", err)}
	if d, ejected := t.failed(); ejected {
		logger.LogAttrs(x.r.Context(), slog.LevelError, "a target is passed over, as it fails", append(where, slog.Duration("for", d))...)
		return
	}
	logger.LogAttrs(x.r.Context(), slog.LevelDebug, "a target has failed", where...)
}

// mayRepeat reports whether a request that has failed may be sent to another
// target.
func (x *exchange) mayRepeat(out *http.Request, err error, again bool) bool {
	if x.body != nil && !x.body.untouched() {
		return false
	}
	var dial *dialError
	if errors.As(err, &dial) {
		return true
	}
	var late net.Error
	if again || x.body != nil || errors.As(err, &late) && late.Timeout() {
		return false // One that takes too long here will do so there.
	}
	switch out.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return out.Header.Get("Upgrade") == ""
	}
	return false
}

// answered changes the upstream server's answer on its way to the client; it is the
// proxy's ModifyResponse.
func (x *exchange) answered(res *http.Response) error {
	x.settled(res.StatusCode)
	for _, change := range x.route.response {
		x.change(res.Header, change)
	}
	switch {
	case x.decided && res.StatusCode != http.StatusTooManyRequests:
		// In a 429 of its own the upstream server tells of its own limits.
		httplimit.WriteHeaders(res.Header, x.g.options.Dialect, &x.verdict)
	case x.outcome == open:
		res.Header["X-Ratelimit-Unenforced"] = []string{"store-unavailable"}
	}
	if res.StatusCode != http.StatusSwitchingProtocols && res.Body != nil && res.ContentLength != 0 {
		idle := x.route.pool.Timeouts.Idle
		cancel := x.cancel
		x.pause = time.AfterFunc(idle, func() { cancel(errStalled) })
		res.Body = &pausing{res.Body, x.pause, idle}
	}
	return nil
}

// settled is told the status of the answer, once for each request that the rules
// have let through: the upstream server's, or that of the gateway when no server
// has answered. It is where a charge that depends on the outcome is settled.
func (x *exchange) settled(status int) {
	if x.target != nil {
		x.g.counts.answers.add(status)
	}
}

// pausing is the body of an answer, which may pause only so long.
type pausing struct {
	inner interface {
		Read(p []byte) (int, error)
		Close() error
	}
	timer *time.Timer
	idle  time.Duration
}

func (p *pausing) Read(b []byte) (int, error) {
	p.timer.Reset(p.idle)
	n, err := p.inner.Read(b)
	// What the client takes its time for is not the server's pause.
	p.timer.Stop()
	return n, err
}

func (p *pausing) Close() error { return p.inner.Close() }

// buffers are what answers are copied through.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return new([bufferSize]byte)[:]
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
