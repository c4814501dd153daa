package gateway

import (
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
)

// The headers in which proxies describe the client.
const (
	forwardedFor   = "X-Forwarded-For"
	forwardedHost  = "X-Forwarded-Host"
	forwardedProto = "X-Forwarded-Proto"
	forwarded      = "Forwarded"
	realIP         = "X-Real-Ip"
)

// onlyTrusted are further headers that servers believe, in addition to all that begin with
// X-Forwarded-. Some describe the client, and others replace the path, which would bypass the rules
// for it. They are removed from requests that do not come from a trusted proxy.
var onlyTrusted = []string{
	httplimit.ClassHeader, httplimit.TenantHeader,
	"X-Original-Url", "X-Rewrite-Url", "X-Original-Path", "X-Envoy-Original-Path", "X-Replaced-Path", "X-Waws-Unencoded-Url",
	// Gunicorn, for example, removes the value of Script-Name from the beginning of the path.
	"Script-Name", "Path-Info", "X-Script-Name",
	"Client-Ip", "X-Client-Ip", "True-Client-Ip", "X-Cluster-Client-Ip", "Proxy-Client-Ip", "Wl-Proxy-Client-Ip",
	"X-Forwarded", "X-Original-Host", "X-Original-Method", "X-Original-Uri", "X-Original-Forwarded-For",
	"Cf-Connecting-Ip", "Cf-Connecting-Ipv6", "Cf-Pseudo-Ipv4", "Fastly-Client-Ip", "X-Appengine-User-Ip", "X-Azure-Clientip", "X-Envoy-External-Address",
}

// forwarding is the third stage of an exchange: the request to the upstream server. It is the
// transport of its own ReverseProxy, whose functions so find it without looking into a context.
type forwarding struct {
	id    *identified
	load  *upstreamLoad
	w     *writer
	proxy httputil.ReverseProxy

	asked  http.Request // the request as the proxy gets it
	body   *body
	target *target
	reply  watched // the body of the upstream server's answer
}

// bare returns the request as the proxy gets it: without the headers, most of which the proxy would
// copy only to remove them or to look at each of them again. It gets those that it alone
// understands, and rewrite adds the others. The result is valid until the exchange ends.
func (f *forwarding) bare() *http.Request {
	f.asked = *f.id.r
	f.asked.Header = nil
	for _, name := range [...]string{"Connection", "Te", "Upgrade"} {
		if v := f.id.r.Header[name]; v != nil {
			if f.asked.Header == nil {
				f.asked.Header = make(http.Header)
			}
			f.asked.Header[name] = v
		}
	}
	f.id.llm.send(&f.asked)
	return &f.asked
}

// rewrite makes the request to the upstream server. It is the proxy's Rewrite. The server is chosen
// later, because one may fail.
func (f *forwarding) rewrite(p *httputil.ProxyRequest) {
	out := p.Out
	// Nothing here looks at the query, so it stays as the client sent it.
	out.URL.RawQuery = f.id.r.URL.RawQuery
	if upgrade := out.Header["Upgrade"]; upgrade != nil && (out.Body != nil || !f.id.r.ProtoAtLeast(1, 1) || !f.id.g.upgrading.allow(upgrade)) {
		// A server may ignore a request for an upgrade, so the header can be removed. HTTP/1.0 has
		// no upgrades.
		delete(out.Header, "Upgrade")
		delete(out.Header, "Connection")
	}
	if out.Body != nil && f.id.llm.call == nil {
		// The answer may begin before the request has ended.
		_ = f.w.control.EnableFullDuplex()
		f.body = newBody(f.id.r, out.Body, f.w.control, &f.id.g.options.Clients, f.id.route.maxBody)
		out.Body = f.body
		// Trailers are known only after the body was read. A copy would stay empty.
		out.Trailer = f.id.r.Trailer
		f.id.g.names.dropTrailers(out.Trailer)
		f.body.ending = func() { f.id.g.names.dropTrailers(out.Trailer) }
	}
	out.Header = f.carry(out.Header)
	f.forward(out.Header)
	for _, change := range f.id.route.request {
		f.id.change(out.Header, change)
	}
	f.id.llm.authorize(out.Header)
	// If the connection breaks, the transport repeats requests that have one of these headers,
	// spelled like this. It cannot know whether the server supports them.
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if v := out.Header[name]; v != nil {
			delete(out.Header, name)
			out.Header[strings.ToLower(name)] = v
		}
	}
}

// carry returns the headers of the request that are passed on as they are, and the given ones that
// belong to the connection to the upstream server. The values are those of the request, which
// nobody changes.
func (f *forwarding) carry(connection http.Header) http.Header {
	in := f.id.r.Header
	// There is room for those that forward adds.
	h := make(http.Header, len(in)+4)
	for name, v := range in {
		if f.id.g.names.passes(name, f.id.trusted) {
			h[name] = v
		}
	}
	for _, line := range in["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	maps.Copy(h, connection)
	return h
}

// forward adds headers that describe the client to the upstream server. Those that the client sent
// stay only if it is a trusted proxy.
func (f *forwarding) forward(h http.Header) {
	in := f.id.r.Header
	peer, _, err := net.SplitHostPort(f.id.r.RemoteAddr)
	if err != nil {
		peer = "" // a Unix socket has no address
	}
	proto := "http"
	if f.id.r.TLS != nil {
		proto = "https"
	}
	host := f.id.r.Host
	list := peer
	if f.id.trusted {
		if prior := in[forwardedFor]; len(prior) > 0 {
			list = joined(prior, peer)
		}
		if v := firstValue(in, forwardedHost); v != "" {
			host = v
		}
		if v := firstValue(in, forwardedProto); v != "" {
			proto = v
		}
	}
	// One array serves all headers, because nobody appends to their values.
	values := [...]string{list, host, proto, f.id.clientIP()}
	set := func(name string, i int) {
		if values[i] != "" {
			h[name] = values[i : i+1 : i+1]
		}
	}
	set(forwardedFor, 0)
	set(forwardedHost, 1)
	set(forwardedProto, 2)
	set(realIP, 3)
	if f.load.Gate != nil {
		h[httplimit.ClassHeader] = []string{f.load.Request.Class.String()}
	}
	if string(f.id.g.options.Identity.Resolver.Source()) == forwarded && peer != "" {
		node := "for=" + peer
		if strings.Contains(peer, ":") {
			node = `for="[` + peer + `]"`
		}
		node += ";proto=" + proto
		if f.id.trusted {
			node = joined(in[forwarded], node)
		}
		h[forwarded] = []string{node}
	}
}

// joined returns a list with the proxy's own entry added.
func joined(list []string, last string) string {
	if last != "" {
		list = append(list[:len(list):len(list)], last)
	}
	return strings.Join(list, ", ")
}

// change carries out a change of headers.
func (id *identified) change(h http.Header, c *gatewayfile.Headers) {
	for _, name := range c.Remove {
		delete(h, name)
	}
	for i := range c.Set {
		s := &c.Set[i]
		value := s.Value
		if s.Entry != "" {
			value, _ = id.facts.Get(s.Entry)
			// A token may contain characters that a header must not have.
			if value == "" || !gatewayfile.IsHeaderValue(value) {
				delete(h, s.Name)
				continue
			}
		}
		h[s.Name] = []string{value}
	}
}

// RoundTrip sends the request to a server of the route's pool. If there was no connection to it,
// nothing was sent, and RoundTrip tries another one. If the connection broke before the answer, it
// repeats the request once, but only if the request changes nothing.
func (f *forwarding) RoundTrip(out *http.Request) (*http.Response, error) {
	p := f.id.route.pool
	client := out.Host
	if ctx := f.id.llm.lasting(out.Context()); ctx != out.Context() {
		out = out.WithContext(ctx)
	}
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
		f.enterTarget(t)
		if again {
			// The earlier URL may still be in use.
			u := *out.URL
			out = out.WithContext(out.Context())
			out.URL = &u
			if out.GetBody != nil {
				out.Body, _ = out.GetBody() // It is in memory.
			}
		}
		out.URL.Scheme, out.URL.Host, out.Host = t.url.Scheme, t.url.Host, p.host(t, client)
		res, err := t.sender.RoundTrip(out)
		if err == nil {
			t.answered()
			return res, nil
		}
		if out.Context().Err() != nil || f.clientFailure() != nil || errors.Is(err, headgate.ErrDenied) {
			return nil, err // the server was not the cause
		}
		f.note(t, err)
		if !f.mayRepeat(out, err, again) {
			return nil, err
		}
		tried, last = append(tried, t), err
	}
}

// enterTarget counts the request as in progress at the target.
func (f *forwarding) enterTarget(t *target) {
	if f.target != nil {
		f.target.inFlight.Add(-1)
	}
	f.target = t
	t.inFlight.Add(1)
	t.requests.Add(1)
}

// note records that a target has failed.
func (f *forwarding) note(t *target, err error) {
	logger := f.id.g.options.Logger
	where := []slog.Attr{slog.String("upstream", f.id.route.pool.Name), slog.String("target", t.name), slog.Any("error", err)}
	level := slog.LevelDebug
	ejected, first := t.failed()
	switch {
	case ejected > 0:
		logger.LogAttrs(f.id.r.Context(), slog.LevelError, "a target fails and is ejected", append(where, slog.Duration("for", ejected))...)
		return
	case first:
		// More warnings would fill the disk when somebody needs the log.
		level = slog.LevelWarn
	}
	logger.LogAttrs(f.id.r.Context(), level, "a target has failed", where...)
}

// mayRepeat reports whether a request that has failed may be sent to another
// target.
func (f *forwarding) mayRepeat(out *http.Request, err error, again bool) bool {
	if f.body != nil && !f.body.untouched() && f.id.llm.call == nil {
		return false
	}
	if _, ok := errors.AsType[*dialError](err); ok {
		return true
	}
	var late net.Error
	if again || f.body != nil || errors.As(err, &late) && late.Timeout() {
		return false // a request that takes too long here takes too long there
	}
	switch out.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return out.Header.Get("Upgrade") == ""
	}
	return false
}

// clientFailure returns the error on the client's side of the request, or nil.
func (f *forwarding) clientFailure() error {
	if f.body == nil {
		return nil
	}
	return f.body.failure()
}

// waited returns how long the gateway has waited for the client.
func (f *forwarding) waited() time.Duration {
	waited := f.w.waited
	if f.body != nil {
		waited += f.body.waitedFor()
	}
	return waited
}

// end ends the use of the target and of the body. It returns how many bytes of the body were read.
func (f *forwarding) end() (received int64) {
	if f.target != nil {
		f.target.inFlight.Add(-1)
	}
	if f.body != nil {
		received = f.body.end()
	}
	return received
}

// dropHopByHop removes the headers that belong to one connection.
func dropHopByHop(h http.Header) {
	if len(h) == 0 {
		return
	}
	for _, name := range gatewayfile.HopByHop {
		delete(h, name)
	}
}

// buffers provides the buffers with which answers are copied.
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
