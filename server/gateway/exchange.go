package gateway

import (
	"log/slog"
	"net/http"
	"net/http/httputil"
	"runtime/debug"
	"strings"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// exchange is one request and its answer. It is reused for later requests. It is the transport of
// its own ReverseProxy, whose functions so find it without looking into a context.
type exchange struct {
	g     *inner
	proxy httputil.ReverseProxy
	w     *writer

	r       *http.Request
	asked   http.Request // the request as the proxy gets it
	began   time.Time    // set if the request is to be logged
	plan    *plan
	route   *route
	name    string // the entry "route"
	host    string // the entry "host"
	path    string // the entry "path", if anything looks at it
	trusted bool   // the connection comes from a trusted proxy
	ip      string
	ipKnown bool
	leaving bool // the connection must end after the answer
	token   *token

	facts   policy.Descriptor
	permits []flow.Permit
	load    admission.Load // of the upstream
	// workBegan is when the request went to the upstream, if it has a load.
	workBegan time.Time
	ask       decide.Ask
	charge    admission.Charge
	decided   bool       // the client is to be told the charge's verdict
	costs     []reported // what the request has cost, as the upstream server says
	heard     bool       // the upstream server has answered
	// refusal is the answer to a request that the gateway refuses although the rules admit it. It
	// also tells the verdict.
	refusal *httplimit.Problem
	outcome outcome

	body   *body
	target *target
	reply  watched              // the body of the upstream server's answer
	ended  func(*http.Response) // trailed
	served bool
}

func newExchange(g *inner) *exchange {
	x := &exchange{g: g, costs: make([]reported, len(g.settling.headers))}
	x.charge = admission.Charge{Store: (*counters)(x), Failure: g.options.OnStoreError, MaxDelay: g.options.MaxDelay, Sleep: x.load.Sleep}
	within := g.options.Clients.Response
	x.w = &writer{within: within, ticks: g.watchers.ticks(within), upgrading: &g.upgrading, watch: g.watchers.newWatch()}
	x.w.informing, x.ended = x.inform, x.trailed
	x.proxy = httputil.ReverseProxy{
		Rewrite:        x.rewrite,
		Transport:      x,
		ModifyResponse: x.answered,
		ErrorHandler:   x.unanswered,
		BufferPool:     &g.buffers,
		ErrorLog:       slog.NewLogLogger(g.options.Logger.Handler(), slog.LevelDebug),
	}
	return x
}

func (x *exchange) begin(w http.ResponseWriter, r *http.Request) {
	x.w.begin(w)
	x.r = r
	if h := w.Header(); h["Connection"] != nil {
		// Early hints would remove the header, and upgrades would double it.
		x.leaving = true
		delete(h, "Connection")
	}
	x.leaving = x.leaving || r.ProtoMajor == 1 && oneOnly(r)
	if x.g.options.AccessLog {
		x.began = time.Now()
	}
	x.g.counts.inFlight.Add(1)
	if hasBody(r) && r.ProtoMajor == 1 {
		// If nobody reads a body, the server reads it to its end before the next request.
		_ = x.w.control.SetReadDeadline(time.Now().Add(x.g.options.Clients.Body))
	}
}

// oneOnly reports whether the connection must end after the request over HTTP/1, because another
// proxy could disagree about where the request ends (RFC 9112, section 6.1). net/http does not tell
// whether there was a Content-Length in addition to the Transfer-Encoding that it used, or a
// Transfer-Encoding in a message of HTTP/1.0, which must not have one.
func oneOnly(r *http.Request) bool {
	return len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1)
}

// noLength reports whether a request of HTTP/1.0 may have a body that was not read as one: its
// method has a body, but there is no length.
func noLength(r *http.Request) bool {
	if r.ProtoAtLeast(1, 1) || r.Header["Content-Length"] != nil {
		return false
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return true
	}
	return false
}

func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// serve decides about the request, and answers it or forwards it.
func (x *exchange) serve() {
	x.plan = x.g.plan()
	id := &x.g.options.Identity
	x.trusted = id.Resolver.Source() != "" && id.Resolver.Trusts(x.r)
	x.look()
	x.describe()
	if !x.admit() {
		x.load.Permit.Done(flow.Unused)
		return
	}
	if x.refusal != nil {
		x.outcome = refused
		x.answer(x.refusal)
		return
	}
	x.beginWork()
	x.proxy.ServeHTTP(x.w, x.bare())
}

// look finds the route and the token, and reasons to refuse the request.
func (x *exchange) look() {
	var hosted bool
	x.host, hosted = identity.Hostname(x.r.Host)
	wrong := x.read()
	switch {
	case x.r.Method == http.MethodConnect || x.r.Method == http.MethodTrace:
		// CONNECT is for another kind of proxy, and TRACE would show the client what the gateway
		// adds.
		x.refuse(methodNotAllowed)
	case !hosted:
		x.refuse(ambiguousHost)
	case wrong != nil:
		x.refuse(wrong)
	case noLength(x.r):
		x.refuse(lengthRequired)
	case x.route == nil:
		x.refuse(noRoute)
	case x.route.maxBody > 0 && x.r.ContentLength > x.route.maxBody:
		x.refuse(bodyTooLarge(x.route.maxBody))
	}
	if p := x.g.names.twice(x.r.Header, x.trusted); p != nil {
		x.refuse(p)
	}
	if x.g.tokens == nil {
		return
	}
	var err error
	if x.token, err = x.g.tokens.of(x.r.Context(), x.g.names.tokens.Of(x.r.Header)); err != nil {
		x.refuse(unauthorized(err))
	} else if x.token == nil {
		_ = x.apiKey() // The log is told of credentials that are neither.
	}
}

// read finds the route by the path. It returns the problem of the path or the method, or nil. If
// nothing looks at paths, they are left to the upstream server.
func (x *exchange) read() *httplimit.Problem {
	u := x.r.URL
	x.route, x.name = x.g.whole, routes.Unmatched
	whole := u.Path == "*" && x.r.Method == http.MethodOptions
	switch {
	case u.Opaque != "", u.Path != "" && u.Path[0] != '/' && !whole:
		// No rule could match it, but some server might take it for a path.
		return ambiguous((&spelling.Error{Reason: spelling.NoPath, At: 1}).Error())
	case strings.IndexByte(x.r.RequestURI, ' ') >= 0: // HTTP/2 has room for it
		return ambiguousSpace
	case !x.plan.readsMethods:
		return nil
	case !spelling.Method(x.r.Method):
		return ambiguousMethod
	case x.plan.overridable:
		if why := identity.Overridden(x.r.Header, u.RawQuery); why != "" {
			return ambiguous(why)
		}
	}
	if !x.plan.readsPaths {
		return nil
	}
	if strings.IndexByte(x.r.RequestURI, '#') >= 0 {
		return fragment
	}
	p, err := spelling.Path{Text: u.Path}, (*spelling.Error)(nil)
	if !whole {
		p, err = spelling.Read(u.EscapedPath(), x.plan.names.Forms())
	}
	if err != nil {
		return ambiguous(err.Error())
	}
	x.path = p.Text
	if p.Kept != nil && x.plan.needsPath {
		return ambiguous((&spelling.Error{Reason: spelling.Parameters, At: p.At}).Error())
	}
	f, err := x.g.find(x.r, &p, x.plan)
	x.route, x.name = f.route, f.name
	if err != nil {
		return ambiguous(err.Error())
	}
	return nil
}

// refuse makes the request be refused after it was charged. Only the first reason counts.
func (x *exchange) refuse(p *httplimit.Problem) {
	if x.refusal == nil {
		x.refusal = p
	}
}

func (x *exchange) routeName() string { return x.name }

// end gives back what the exchange holds, and records its result. It must be deferred, because the
// proxy panics to end an answer that cannot be completed.
func (x *exchange) end() {
	panicked := recover()
	aborted := panicked == http.ErrAbortHandler //nolint:errorlint // net/http documents this very value.
	if panicked != nil && !aborted {
		x.g.options.Logger.LogAttrs(x.r.Context(), slog.LevelError, "a request caused a panic",
			slog.String("method", x.r.Method), slog.String("path", x.r.URL.Path),
			slog.Any("panic", panicked), slog.String("stack", string(debug.Stack())))
		x.outcome = broken
		if x.w.status == 0 && x.w.upgraded == nil {
			x.answer(defect)
		} else {
			aborted = true // a part of an answer must not look like a whole one
		}
	}
	if aborted && x.r.Context().Err() != nil {
		x.outcome = clientGone
	}
	if x.target != nil {
		x.target.inFlight.Add(-1)
	}
	x.load.Permit.Done(flow.Ignore) // no effect if the load has learnt from the request
	x.leave()
	var received int64
	if x.body != nil {
		received = x.body.end()
	}
	status := x.w.status
	sent := x.w.end(x.r.ProtoMajor == 1 && !aborted)
	x.settle(status, sent)
	x.g.counts.add(x.outcome, status)
	x.g.counts.inFlight.Add(-1)
	if x.g.options.AccessLog {
		x.log(status, sent, received, aborted)
	}
	if x.served {
		x.reset()
		x.g.pool.Put(x)
	}
	if aborted {
		panic(http.ErrAbortHandler)
	}
}

// reset clears the request, so that the pool does not keep parts of it in memory.
func (x *exchange) reset() {
	clear(x.facts)
	clear(x.charge.Checks[:cap(x.charge.Checks)]) // checks of permits may be there
	x.charge.Reset()
	clear(x.costs)
	*x = exchange{
		g: x.g, proxy: x.proxy, w: x.w, ended: x.ended,
		costs: x.costs, facts: x.facts[:0], permits: x.permits[:0], charge: x.charge,
	}
}
