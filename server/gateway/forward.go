package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strings"
	"sync"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/admission"
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

// bare returns the request as the proxy gets it: without the headers, most of which the proxy would
// copy only to remove them or to look at each of them again. It gets those that it alone
// understands, and rewrite adds the others. The result is valid until the exchange ends.
func (x *exchange) bare() *http.Request {
	x.asked = *x.r
	x.asked.Header = nil
	for _, name := range [...]string{"Connection", "Te", "Upgrade"} {
		if v := x.r.Header[name]; v != nil {
			if x.asked.Header == nil {
				x.asked.Header = make(http.Header)
			}
			x.asked.Header[name] = v
		}
	}
	return &x.asked
}

// rewrite makes the request to the upstream server. It is the proxy's Rewrite. The server is chosen
// later, because one may fail.
func (x *exchange) rewrite(p *httputil.ProxyRequest) {
	out := p.Out
	// Nothing here looks at the query, so it stays as the client sent it.
	out.URL.RawQuery = x.r.URL.RawQuery
	if upgrade := out.Header["Upgrade"]; upgrade != nil && (out.Body != nil || !x.r.ProtoAtLeast(1, 1) || !x.g.upgrading.allow(upgrade)) {
		// A server may ignore a request for an upgrade, so the header can be removed. HTTP/1.0 has
		// no upgrades.
		delete(out.Header, "Upgrade")
		delete(out.Header, "Connection")
	}
	if out.Body != nil {
		// The answer may begin before the request has ended.
		_ = x.w.control.EnableFullDuplex()
		x.body = newBody(x.r, out.Body, x.w.control, &x.g.options.Clients, x.route.maxBody)
		out.Body = x.body
		// Trailers are known only after the body was read. A copy would stay empty.
		out.Trailer = x.r.Trailer
		x.g.names.dropTrailers(out.Trailer)
		x.body.ending = func() { x.g.names.dropTrailers(out.Trailer) }
	}
	out.Header = x.carry(out.Header)
	x.forward(out.Header)
	for _, change := range x.route.request {
		x.change(out.Header, change)
	}
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
func (x *exchange) carry(connection http.Header) http.Header {
	in := x.r.Header
	// There is room for those that forward adds.
	h := make(http.Header, len(in)+4)
	for name, v := range in {
		if x.g.names.passes(name, x.trusted) {
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
func (x *exchange) forward(h http.Header) {
	in := x.r.Header
	peer, _, err := net.SplitHostPort(x.r.RemoteAddr)
	if err != nil {
		peer = "" // a Unix socket has no address
	}
	proto := "http"
	if x.r.TLS != nil {
		proto = "https"
	}
	host := x.r.Host
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
	}
	// One array serves all headers, because nobody appends to their values.
	values := [...]string{list, host, proto, x.clientIP()}
	set := func(name string, i int) {
		if values[i] != "" {
			h[name] = values[i : i+1 : i+1]
		}
	}
	set(forwardedFor, 0)
	set(forwardedHost, 1)
	set(forwardedProto, 2)
	set(realIP, 3)
	if x.load.Gate != nil {
		h[httplimit.ClassHeader] = []string{x.load.Request.Class.String()}
	}
	if string(x.g.options.Identity.Resolver.Source()) == forwarded && peer != "" {
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

// joined returns a list with the proxy's own entry added.
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
func (x *exchange) RoundTrip(out *http.Request) (*http.Response, error) {
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
		if again {
			// The earlier URL may still be in use.
			u := *out.URL
			out = out.WithContext(out.Context())
			out.URL = &u
		}
		out.URL.Scheme, out.URL.Host, out.Host = t.url.Scheme, t.url.Host, p.host(t, client)
		res, err := t.transport.RoundTrip(out)
		if err == nil {
			t.answered()
			return res, nil
		}
		if out.Context().Err() != nil || x.clientFailure() != nil {
			return nil, err // the server was not the cause
		}
		x.note(t, err)
		if !x.mayRepeat(out, err, again) {
			return nil, err
		}
		tried, last = append(tried, t), err
	}
}

// enterTarget counts the request as in progress at the target.
func (x *exchange) enterTarget(t *target) {
	if x.target != nil {
		x.target.inFlight.Add(-1)
	}
	x.target = t
	t.inFlight.Add(1)
	t.requests.Add(1)
}

// note records that a target has failed.
func (x *exchange) note(t *target, err error) {
	logger := x.g.options.Logger
	where := []slog.Attr{slog.String("upstream", x.route.pool.Name), slog.String("target", t.name), slog.Any("error", err)}
	level := slog.LevelDebug
	ejected, first := t.failed()
	switch {
	case ejected > 0:
		logger.LogAttrs(x.r.Context(), slog.LevelError, "a target is passed over, as it fails", append(where, slog.Duration("for", ejected))...)
		return
	case first:
		// More warnings would fill the disk when somebody needs the log.
		level = slog.LevelWarn
	}
	logger.LogAttrs(x.r.Context(), level, "a target has failed", where...)
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
		return false // a request that takes too long here takes too long there
	}
	switch out.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return out.Header.Get("Upgrade") == ""
	}
	return false
}

// answered changes the upstream server's answer for the client. It is the proxy's ModifyResponse.
func (x *exchange) answered(res *http.Response) error {
	if res.StatusCode < 100 {
		return fmt.Errorf("gateway: the server answers with the status %03d, which is none", res.StatusCode)
	}
	if res.StatusCode == http.StatusSwitchingProtocols && !strings.EqualFold(res.Request.Header.Get("Upgrade"), res.Header.Get("Upgrade")) {
		// The error closes the connection.
		return fmt.Errorf("gateway: the server has changed to the protocol %q, and %q was asked for", res.Header.Get("Upgrade"), res.Request.Header.Get("Upgrade"))
	}
	x.g.counts.answers.add(res.StatusCode)
	x.hear(res.Header)
	x.hearLoad(res)
	x.withholdTrailers(res.Trailer)
	h := res.Header
	if res.StatusCode != http.StatusSwitchingProtocols {
		h = x.w.Header()
		deliver(h, res)
		x.closeAfter(h)
	}
	for _, change := range x.route.response {
		x.change(h, change)
	}
	if res.StatusCode != http.StatusTooManyRequests {
		// With a 429 of its own, the upstream server describes its own limits.
		x.tell(h)
	}
	if res.StatusCode != http.StatusSwitchingProtocols && res.Body != nil && res.Body != http.NoBody {
		x.reply = watched{ReadCloser: res.Body, watch: x.w.watch, ticks: x.route.pool.idleTicks, of: res, ended: x.ended}
		x.w.watch.reading(res.Body)
		res.Body = &x.reply
	}
	return nil
}

// deliver moves the answer's headers to those for the client. The proxy would copy them one by one.
func deliver(to http.Header, res *http.Response) {
	if admission.IsEvents(res.Header["Content-Type"]) {
		// The proxy cannot see the type any more. What has no length is passed on at once as well.
		res.ContentLength = -1
	}
	for name, values := range res.Header {
		if before := to[name]; before != nil {
			values = append(before[:len(before):len(before)], values...)
		}
		to[name] = values
	}
	res.Header = nil
}

// inform removes from an informational answer what clients must not see, because the proxy does so
// only for final answers. It returns false for a client that does not understand such answers. It
// may be called while the request is still being sent.
func (x *exchange) inform(h http.Header) bool {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	dropHopByHop(h)
	x.withhold(h)
	return x.r.ProtoAtLeast(1, 1)
}

// withhold removes from trailers and informational headers what clients must not see.
func (x *exchange) withhold(h http.Header) {
	for i := range x.costs {
		if header := &x.g.settling.headers[i]; !header.keep {
			delete(h, header.name)
		}
	}
	for _, change := range x.route.response {
		for _, name := range change.Remove {
			delete(h, name)
		}
	}
}

// trailed is called when the upstream server's whole answer was read, including its trailers,
// announced or not.
func (x *exchange) trailed(res *http.Response) {
	x.hear(res.Trailer)
	x.endLoad(res)
	x.withholdTrailers(res.Trailer)
}

// withholdTrailers is withhold for trailers. It also removes those that belong to the connection,
// because the proxy removes only such headers.
func (x *exchange) withholdTrailers(h http.Header) {
	dropHopByHop(h)
	x.withhold(h)
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

// closeAfter closes the connection after the answer if it must end, or if the answer begins before
// the request has ended. If such a request never ended, the server would take the rest of it for
// the next request.
func (x *exchange) closeAfter(h http.Header) {
	if x.leaving || x.body != nil && x.r.ProtoMajor == 1 && !x.body.complete() {
		h["Connection"] = []string{"close"}
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
