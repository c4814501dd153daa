package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"runtime/debug"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/policy/inprogress"
)

// exchange is one request and its answer. It goes through four stages, of which each knows those
// before it: it is identified, decided about, forwarded, and settled. The exchange answers, and has
// what belongs to no stage. It is reused for later requests.
type exchange struct {
	g          *inner
	w          *writer
	id         identified
	decision   decision
	forwarding forwarding
	costs      costs
	llm        metering

	began   time.Time // set if the request is to be logged
	leaving bool      // the connection must end after the answer
	outcome outcome
	served  bool
	ended   func(*http.Response) // trailed
}

func newExchange(g *inner) *exchange {
	x := &exchange{g: g}
	x.id.g, x.id.llm, x.llm.id = g, &x.llm, &x.id
	within := g.options.Clients.Response
	x.w = &writer{within: within, ticks: g.watchers.ticks(within), upgrading: &g.upgrading, watch: g.watchers.newWatch()}
	x.w.informing, x.ended = x.inform, x.trailed
	d := &x.decision
	d.id = &x.id
	d.charge = admission.Charge{Store: d.counters(), Failure: g.options.OnStoreError, MaxDelay: g.options.MaxDelay, Sleep: d.load.Sleep}
	x.costs = costs{id: &x.id, d: d, reported: make([]reported, len(g.settling.headers))}
	f := &x.forwarding
	f.id, f.load, f.w = &x.id, &d.load, x.w
	f.proxy = httputil.ReverseProxy{
		Rewrite:        f.rewrite,
		Transport:      f,
		ModifyResponse: x.answered,
		ErrorHandler:   x.unanswered,
		BufferPool:     &g.buffers,
		ErrorLog:       slog.NewLogLogger(g.options.Logger.Handler(), slog.LevelDebug),
	}
	return x
}

func (x *exchange) begin(w http.ResponseWriter, r *http.Request) {
	x.w.begin(w)
	x.id.r = r
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

func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// serve takes the request through the stages.
func (x *exchange) serve() {
	x.id.identify()
	x.id.describe()
	var admitted outcome
	var refusal *refusal
	if x.llm.begin(); x.llm.large() {
		refusal = x.decision.ahead(x.w.Header())
	}
	if refusal == nil {
		if x.forwarding.body = x.llm.read(x.w); x.llm.call != nil {
			x.id.describe() // now with the model
		}
		admitted, refusal = x.decision.decide(x.w.Header())
	}
	if refusal != nil {
		x.outcome = refusal.outcome
		if refusal.problem != nil {
			x.answer(refusal.problem)
		} else {
			x.w.WriteHeader(httplimit.StatusClientGone)
		}
		x.decision.load.Permit.Done(flow.Unused)
		return
	}
	x.outcome = admitted
	if x.id.refusal != nil {
		x.outcome = refused
		x.answer(x.id.refusal)
		return
	}
	x.decision.load.begin()
	x.forwarding.proxy.ServeHTTP(x.w, x.forwarding.bare())
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
	x.costs.read(res.Header)
	x.llm.answered(res)
	if load := &x.decision.load; load.Permit.Held() && load.answered(res, x.forwarding.waited()) {
		x.w.timed = true
	}
	x.withholdTrailers(res.Trailer)
	h := res.Header
	if res.StatusCode != http.StatusSwitchingProtocols {
		h = x.w.Header()
		deliver(h, res)
		x.closeAfter(h)
	}
	for _, change := range x.id.route.response {
		x.id.change(h, change)
	}
	if res.StatusCode != http.StatusTooManyRequests {
		// With a 429 of its own, the upstream server describes its own limits.
		x.limits(h)
	}
	if res.StatusCode != http.StatusSwitchingProtocols && res.Body != nil && res.Body != http.NoBody {
		x.forwarding.reply = watched{ReadCloser: res.Body, watch: x.w.watch, ticks: x.id.route.pool.idleTicks, of: res, ended: x.ended}
		x.w.watch.reading(res.Body)
		res.Body = x.llm.keep(&x.forwarding.reply)
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
	return x.id.r.ProtoAtLeast(1, 1)
}

// withhold removes from trailers and informational headers what clients must not see.
func (x *exchange) withhold(h http.Header) {
	x.costs.withhold(h)
	for _, change := range x.id.route.response {
		for _, name := range change.Remove {
			delete(h, name)
		}
	}
}

// trailed is called when the upstream server's whole answer was read, including its trailers,
// announced or not.
func (x *exchange) trailed(res *http.Response) {
	x.costs.read(res.Trailer)
	if load := &x.decision.load; load.Permit.Held() {
		load.learn(res.StatusCode, res.Trailer["Grpc-Status"], x.forwarding.waited())
	}
	x.withholdTrailers(res.Trailer)
}

// withholdTrailers is withhold for trailers. It also removes those that belong to the connection,
// because the proxy removes only such headers.
func (x *exchange) withholdTrailers(h http.Header) {
	dropHopByHop(h)
	x.withhold(h)
}

// closeAfter closes the connection after the answer if it must end, or if the answer begins before
// the request has ended. If such a request never ended, the server would take the rest of it for
// the next request.
func (x *exchange) closeAfter(h http.Header) {
	if x.leaving || x.forwarding.body != nil && x.id.r.ProtoMajor == 1 && !x.forwarding.body.complete() {
		h["Connection"] = []string{"close"}
	}
}

// answer answers the request here, and tells the client about its limits.
func (x *exchange) answer(p *httplimit.Problem) {
	h := x.w.Header()
	x.limits(h)
	if p.Status == http.StatusUnauthorized {
		challenge := `Bearer error="invalid_token"`
		if x.id.refusal == noToken {
			challenge = "Bearer"
		}
		h["Www-Authenticate"] = []string{challenge} // every 401 must have it
	}
	x.closeAfter(h)
	if x.llm.options != nil {
		x.llm.answer(x.w, p, &x.decision.charge)
		return
	}
	p.Write(x.w, x.id.r)
}

// limits tells the client about its limits, or that nobody has asked for them.
func (x *exchange) limits(h http.Header) {
	x.decision.limits(h)
	if x.decision.decided && x.llm.options != nil {
		x.llm.options.API.Limits(h, &x.decision.charge.Verdict, x.id.plan.policy.Set, time.Now())
	}
	if x.outcome == open {
		h["X-Ratelimit-Unenforced"] = []string{"store-unavailable"}
	}
}

// unanswered answers the request if the upstream server does not. It is the proxy's ErrorHandler.
func (x *exchange) unanswered(_ http.ResponseWriter, _ *http.Request, err error) {
	x.outcome = unanswered
	failure, ctx := x.forwarding.clientFailure(), x.id.r.Context()
	x.decision.load.failed(err, failure != nil, ctx.Err() != nil)
	p := noAnswer
	var late net.Error
	var unconnected *dialError
	// What a provider has got, it may have worked on, even if nobody hears of it.
	held, isHeld := errors.AsType[*headgate.DeniedError](err)
	x.llm.unsent(isHeld || errors.Is(err, errNoTarget) || errors.As(err, &unconnected))
	switch {
	case errors.Is(failure, errTooLarge):
		p, x.outcome = bodyTooLarge(x.id.route.maxBody), refused
	case errors.Is(failure, errTooSlow):
		p, x.outcome = bodySlow, clientGone
	case inprogress.Lost(ctx):
		x.outcome = unavailable
		lost := httplimit.Problem(notice.ReducedCapacity(admission.UnavailableFor))
		lost.Detail = "The right to have the request in progress was lost."
		p = &lost
	case ctx.Err() != nil:
		x.outcome = clientGone
		x.closeAfter(x.w.Header())
		x.w.WriteHeader(httplimit.StatusClientGone)
		return
	case failure != nil:
		p, x.outcome = bodyBroken, clientGone
	case isHeld:
		x.outcome = crowded
		p = &httplimit.Problem{Title: "The provider is at a limit of its own", Status: http.StatusTooManyRequests, RetryAfterMS: max(held.Decision.RetryAfter.Milliseconds(), 1)}
	case errors.Is(err, errNoTarget):
		p = noUpstream
	case errors.As(err, &late) && late.Timeout(), errors.Is(err, context.DeadlineExceeded):
		p = lateAnswer
	}
	x.g.counts.answers.add(p.Status)
	x.answer(p)
}

// end gives back what the exchange holds, and records its result. It must be deferred, because the
// proxy panics to end an answer that cannot be completed.
func (x *exchange) end() {
	panicked := recover()
	aborted := panicked == http.ErrAbortHandler //nolint:errorlint // net/http documents this very value.
	if panicked != nil && !aborted {
		x.g.options.Logger.LogAttrs(x.id.r.Context(), slog.LevelError, "a request caused a panic",
			slog.String("method", x.id.r.Method), slog.String("path", x.id.r.URL.Path),
			slog.Any("panic", panicked), slog.String("stack", string(debug.Stack())))
		x.outcome = broken
		if x.w.status == 0 && x.w.upgraded == nil {
			x.answer(defect)
		} else {
			aborted = true // a part of an answer must not look like a whole one
		}
	}
	if aborted && x.id.r.Context().Err() != nil {
		x.outcome = clientGone
	}
	x.llm.drain()
	x.decision.load.Permit.Done(flow.Ignore) // no effect if the load has learnt from the request
	x.decision.leave()
	received := x.forwarding.end()
	status := x.w.status
	sent := x.w.end(x.id.r.ProtoMajor == 1 && !aborted)
	x.costs.settle(x.outcome, status, sent)
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
	d, id, f, c := &x.decision, &x.id, &x.forwarding, &x.costs
	clear(id.facts)
	*id = identified{g: x.g, facts: id.facts[:0], llm: &x.llm}
	x.llm = metering{id: id}
	clear(d.charge.Checks[:cap(d.charge.Checks)]) // checks of permits may be there
	d.charge.Reset()
	*d = decision{id: id, permits: d.permits[:0], charge: d.charge}
	f.asked, f.body, f.target, f.reply = http.Request{}, nil, nil, watched{}
	clear(c.reported)
	c.answered = false
	x.began, x.leaving, x.outcome, x.served = time.Time{}, false, passed, false
}

// log writes the line of a request to the access log. It leaves out the query and headers, which
// may contain secrets.
func (x *exchange) log(status int, sent, received int64, cut bool) {
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs,
		slog.String("method", x.id.r.Method), slog.String("host", x.id.r.Host), slog.String("path", x.id.r.URL.Path),
		slog.String("protocol", x.id.r.Proto), slog.String("route", x.id.name), slog.String("from", x.id.clientIP()),
		slog.Int("status", status), slog.String("verdict", outcomeNames[x.outcome]))
	switch {
	case x.outcome == listed:
		attrs = append(attrs, slog.String("list", x.decision.ask.Denied.Name))
	case x.decision.ask.Allowed != nil:
		attrs = append(attrs, slog.String("list", x.decision.ask.Allowed.Name))
	case x.decision.decided:
		if d := x.decision.charge.Verdict.Deciding(); d != nil {
			attrs = append(attrs, slog.String("rule", d.Rule.Name()), slog.String("limit", d.Limit.String()), slog.Int64("remaining", d.Remaining))
		}
	}
	if x.forwarding.target != nil {
		attrs = append(attrs, slog.String("upstream", x.forwarding.target.name))
	}
	attrs = append(attrs, slog.Int64("received", received), slog.Int64("sent", sent), slog.Duration("took", time.Since(x.began)))
	if cut {
		attrs = append(attrs, slog.Bool("cut_off", true))
	}
	x.g.options.Logger.LogAttrs(x.id.r.Context(), slog.LevelInfo, "request", attrs...)
}

// outcome is the result of a request, for the log and the metrics.
type outcome uint8

const (
	passed      outcome = iota // sent to an upstream server
	open                       // sent to an upstream server without a decision
	denied                     // by a limit
	listed                     // denied by the policy's deny list
	crowded                    // denied because there was no permit
	refused                    // by the gateway itself: no route, no valid token, too large
	unavailable                // there was no decision
	unanswered                 // no upstream server has answered
	clientGone                 // the client has gone, or was too slow
	broken                     // ended by a defect

	outcomes // the number of them
)

// outcomeNames are the names of outcomes in the log and the metrics.
var outcomeNames = [outcomes]string{
	"passed", "open", "denied", "listed", "shed", "refused", "unavailable", "unanswered", "client_gone", "broken",
}

// Problems that are the same for all requests. They must not be changed.
var (
	defect           = &httplimit.Problem{Title: "The request could not be handled", Status: http.StatusInternalServerError}
	noRoute          = &httplimit.Problem{Title: "There is nothing here", Status: http.StatusNotFound, Detail: "The gateway has no route for the request."}
	methodNotAllowed = &httplimit.Problem{Title: "The method is not allowed", Status: http.StatusMethodNotAllowed, Detail: "The gateway passes on neither CONNECT nor TRACE."}
	ambiguousMethod  = ambiguous("Its method has small letters, which some servers take for capital ones.")
	ambiguousHost    = ambiguous(identity.Unhosted)
	ambiguousSpace   = ambiguous("There is a space in its target, which ends there for some servers. Send %20 instead.")
	fragment         = ambiguous(`Servers read its path in different ways: there is a "#" in it. Send a path without it.`)
	lengthRequired   = &httplimit.Problem{Title: "The request has no length", Status: http.StatusLengthRequired, Detail: "A body of HTTP/1.0 has a Content-Length."}
	bodySlow         = &httplimit.Problem{Title: "The request took too long", Status: http.StatusRequestTimeout, Detail: "Its body did not come in time."}
	bodyBroken       = &httplimit.Problem{Title: "The request is not complete", Status: http.StatusBadRequest, Detail: "Its body ended before its time or is not framed as HTTP wants it."}
	noAnswer         = &httplimit.Problem{Title: "The upstream server does not answer", Status: http.StatusBadGateway}
	lateAnswer       = &httplimit.Problem{Title: "The upstream server does not answer in time", Status: http.StatusGatewayTimeout}
	noToken          = &httplimit.Problem{Title: "The request has no token", Status: http.StatusUnauthorized, Detail: "Send one in the header that it is expected in."}
	noUpstream       = &httplimit.Problem{Title: "No upstream server is available", Status: http.StatusServiceUnavailable, RetryAfterMS: 1000}
)

func tooLong(entry string) *httplimit.Problem {
	p := httplimit.Problem(notice.TooLong(entry))
	return &p
}

func bodyTooLarge(most int64) *httplimit.Problem {
	return &httplimit.Problem{Title: "The request is too large", Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("Its body may have %d bytes.", most)}
}

// ambiguous returns the problem for a request that different servers read in different ways.
func ambiguous(detail string) *httplimit.Problem {
	p := httplimit.Problem(notice.Ambiguous(detail))
	return &p
}

// unauthorized returns the problem for a token that is not accepted. It does not say which part of
// the token is wrong: only its issuer needs to know.
func unauthorized(err error) *httplimit.Problem {
	p := &httplimit.Problem{Title: "The request has no valid token", Status: http.StatusUnauthorized, Detail: "The token is not valid."}
	switch {
	case errors.Is(err, errNoToken):
		return noToken
	case errors.Is(err, errExpired):
		p.Detail = "The token has expired."
	case errors.Is(err, errNotYet):
		p.Detail = "The token is not valid yet."
	}
	return p
}
