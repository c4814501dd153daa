package httplimit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/notice"
)

// Response describes how a request has ended.
type Response struct {
	// Status is the status that was sent; 500 if the handler panicked before it sent one.
	Status int
	// Bytes is the length of the body that was written.
	Bytes int64
	// Cost is the cost that the handler gave with [SetCost], or -1.
	Cost int64
}

// Settle makes the cost of a request (that of [Cost], or one unit) an estimate, which is reserved.
// When the request has ended, the function returns its real cost, 0 or more. If that is less than
// the estimate, the difference is given back. If it is more, the difference is charged, whether it
// fits or not.
//
// The rules of a [Policy] say how long a request may take, and what happens to the units if nobody
// reports its end, because the process died. If a request took longer than that, a difference is
// still charged, but none is given back.
//
// The store must be a [headgate.Ledger]. Settling takes one more call to it.
func Settle(cost func(r *http.Request, end Response) int64) Option {
	return func(s *settings) {
		s.Needs("Settle", cost != nil)
		s.settle = cost
	}
}

// Passage is an admitted request whose end matters, for its charge, for permits of rules, or for
// the permit of a gate. Call [Passage.End] once when the request has ended.
type Passage struct {
	gate   *Gate
	held   *admission.Passage[*http.Request]
	r      *http.Request
	header http.Header // of the response
}

// Context returns the context for the handler. [SetCost] and [Done] find the passage in it. It also
// shows that a second pass of the request under the same bounds is a part of the first. It is ctx
// itself if none of that is needed.
func (p *Passage) Context(ctx context.Context) context.Context { return p.held.Context(ctx) }

// SetCost is for handlers behind a middleware with [Settle]. It sets the real cost of the request
// whose context this is, for the function of Settle to read. It reports whether there is such a
// middleware. The last call counts.
func SetCost(ctx context.Context, cost int64) bool {
	return admission.SetCost[*http.Request](ctx, cost)
}

// End gives the permits back, and settles the charge by the status and by the length of the body
// that were sent. It takes at most a second after the request's context has ended. On a nil passage
// it does nothing.
func (p *Passage) End(status int, bytes int64) {
	if p == nil {
		return
	}
	p.held.Done(p.outcome(status))
	p.held.End(status, func(r *http.Request, cost int64) int64 {
		return p.gate.settings.settle(r, Response{status, bytes, cost})
	})
}

// serve lets next answer the request, and ends the passage with what was sent.
func (p *Passage) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	seen := &responseWatch{ResponseWriter: w, passage: p}
	panicked := true
	defer func() {
		if seen.status == 0 {
			seen.status = http.StatusOK
			if panicked {
				seen.status = http.StatusInternalServerError
			}
		}
		if panicked || seen.flushed.Load() || seen.waited() {
			p.held.Done(flow.Ignore)
		}
		p.End(seen.status, seen.bytes)
	}()
	if ctx := p.Context(r.Context()); ctx != r.Context() {
		r = r.WithContext(ctx)
		if p.gate.settings.through != nil {
			seen.watch(r)
		}
	}
	next.ServeHTTP(seen, r)
	panicked = false
}

// The headers in which a trusted peer gives the class and the tenant of a request; see [Load].
const (
	ClassHeader  = "Headgate-Class"
	TenantHeader = "Headgate-Tenant"
)

// RetryHeader is a header of answers that should not be retried; its value is "no". Such an answer
// also has X-Envoy-Ratelimited, which keeps Envoy from retrying.
const RetryHeader = notice.RetryHeader

// Load says how requests are described to the gate of [Through]. With the zero Load, all requests
// are of class [flow.Critical], cost one unit, and have the same tenant.
type Load struct {
	// Describe returns the description of a request. It may be nil. It must not take class or
	// tenant from anything that any client can write.
	Describe func(r *http.Request) flow.Request
	// Exempt reports whether a request bypasses the gate, such as a health check, an operator's
	// request or a long poll. It may be nil.
	Exempt func(r *http.Request) bool
	// Peers makes [ClassHeader] and [TenantHeader] replace what Describe returns, in requests from
	// the proxies that [TrustProxies] names. In other requests these headers are ignored.
	Peers bool
}

// Through makes requests pass a gate, which bounds how much is in progress: one of package adaptive
// or shed, for instance, or a chain. The gate is asked before the limits, so that a request that it
// refuses is not charged. It learns how each request has ended:
//
//   - An answer of 200 to 399 is a [flow.Success].
//   - 503 and 504 are [flow.Overload], and so is a context whose deadline has passed.
//   - [flow.Canceled] if the client has gone.
//   - Everything else says nothing about load, and is [flow.Ignore]: other answers of 400 and
//     more, a panic, an answer that was flushed before it was complete, and a request for more than
//     a quarter of whose time the server waited for the client.
//
// Server-sent events, and connections that are hijacked or upgraded, give their permits back when
// they begin, because they last as long as their clients like. Handlers that know more use [Done].
//
// A request that is refused is answered with 503, a problem document and a Retry-After that is
// spread over some seconds. Unless the gate says that a retry makes sense, the answer also has
// [RetryHeader]. If the gate refuses because of a rate, the request is answered as if a limit had
// denied it.
//
// With [flow.Shadow] the gate only measures. Through may be given once; use a [flow.Chain] for
// several gates.
func Through(gate flow.Gate, load Load) Option {
	return func(s *settings) {
		switch {
		case gate == nil:
			s.Bad("Through", "Through needs a gate")
		case s.through != nil:
			s.Bad("Through", "Through is given twice; make one gate of several with flow.Chain")
		}
		s.through, s.load = gate, load
	}
}

// Done is for handlers behind a middleware with [Through]. It gives back the permit of the request
// whose context this is, and tells the gate how the work has ended. Use it if the status does not
// say it: a query that timed out and is answered with 500 is [flow.Overload], and a long poll is
// [flow.Ignore] before it begins to wait. Only the first Done of a request counts. Done reports
// whether this was the first.
func Done(ctx context.Context, outcome flow.Outcome) bool {
	return admission.Done[*http.Request](ctx, outcome)
}

// describe returns the description of a request for the gate; false if the gate is not asked.
func (s *settings) describe(r *http.Request) (request flow.Request, ok bool) {
	if s.load.Exempt != nil && s.load.Exempt(r) {
		return request, false
	}
	if s.load.Describe != nil {
		request = s.load.Describe(r)
	}
	if s.load.Peers && s.resolver.Trusts(r.RemoteAddr) {
		admission.Claim(&request, r.Header[ClassHeader], r.Header[TenantHeader])
	}
	return request, true
}

// outcome says what the end of the request shows about load.
func (p *Passage) outcome(status int) flow.Outcome {
	err := p.r.Context().Err()
	switch {
	case admission.IsEvents(p.header["Content-Type"]):
		return flow.Ignore
	case errors.Is(err, context.Canceled):
		return flow.Canceled
	case err != nil, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return flow.Overload
	case status >= http.StatusOK && status < http.StatusBadRequest:
		return flow.Success
	}
	return flow.Ignore
}

// shed answers a request that the gate has refused.
func (g *Gate) shed(w http.ResponseWriter, r *http.Request, rejection *flow.Rejection) {
	if denied, ok := errors.AsType[*headgate.DeniedError](rejection.Cause); ok && denied.Decision.Limit != nil {
		v := headgate.NewVerdict([]headgate.Decision{denied.Decision})
		WriteHeaders(w.Header(), g.settings.dialect, &v)
		g.settings.denied(w, r, v)
		return
	}
	p := Problem(notice.Shed(w.Header(), rejection))
	p.Write(w, r)
}

// responseWatch is a ResponseWriter that records what is sent. It can flush and be hijacked if the
// wrapped writer can.
type responseWatch struct {
	http.ResponseWriter
	passage *Passage
	status  int
	bytes   int64

	// The following fields are for passages with a permit only.
	timed bool
	began time.Time
	// client is how long the server has waited for the client, in nanoseconds: for the request, and
	// for the client to take the response. A handler may do both at once.
	client  atomic.Int64
	flushed atomic.Bool
}

// slowClient is how long the server may wait for a client without regard to the rest of the time.
const slowClient = 5 * time.Millisecond

// watch makes the responseWatch measure how long the server waits for the request's client. The request
// is the caller's own copy.
func (w *responseWatch) watch(r *http.Request) {
	w.timed, w.began = true, time.Now()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &watchedBody{r.Body, w}
	}
}

// waited reports whether the server waited for the client for so much of the time that the duration
// of the request says nothing about load.
func (w *responseWatch) waited() bool {
	client := time.Duration(w.client.Load())
	return client > slowClient && 4*client > time.Since(w.began)
}

// now is the time, if it matters.
func (w *responseWatch) now() (t time.Time) {
	if w.timed {
		t = time.Now()
	}
	return t
}

// since adds the time since then to the time that the server has waited for the client.
func (w *responseWatch) since(then time.Time) {
	if w.timed {
		w.client.Add(int64(time.Since(then)))
	}
}

// watchedBody is a request body that measures how long the server waits for it.
type watchedBody struct {
	io.ReadCloser
	of *responseWatch
}

// Read implements [io.Reader].
func (b *watchedBody) Read(p []byte) (int, error) {
	defer b.of.since(b.of.now())
	return b.ReadCloser.Read(p)
}

// Unwrap is for [http.ResponseController].
func (w *responseWatch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// begin records the status. A response that goes on for as long as its client likes must not hold a
// permit until its end.
func (w *responseWatch) begin(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	if w.timed && (status == http.StatusSwitchingProtocols || admission.IsEvents(w.Header()["Content-Type"])) {
		w.passage.held.Done(flow.Ignore)
	}
}

// WriteHeader implements [http.ResponseWriter].
func (w *responseWatch) WriteHeader(status int) {
	// A status below 200 is not the final one, unless the protocol changes.
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (w *responseWatch) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	then := w.now()
	n, err := w.ResponseWriter.Write(b)
	w.since(then)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets the server send files as fast as it can.
func (w *responseWatch) ReadFrom(src io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	if w.timed && !isFile(src) {
		// Only writing depends on the client.
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	then := w.now()
	n, err := io.Copy(w.ResponseWriter, src)
	w.since(then)
	w.bytes += n
	return n, err
}

// isFile reports whether src can be read without waiting for anybody.
func isFile(src io.Reader) bool {
	if part, ok := src.(*io.LimitedReader); ok {
		src = part.R
	}
	_, ok := src.(*os.File)
	return ok
}

// Flush implements [http.Flusher].
func (w *responseWatch) Flush() { _ = w.FlushError() }

// FlushError is for [http.ResponseController]. To flush is to send a status.
func (w *responseWatch) FlushError() error {
	then := w.now()
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.since(then)
	if !errors.Is(err, http.ErrNotSupported) {
		w.begin(http.StatusOK)
		w.flushed.Store(true)
	}
	return err
}

// Hijack implements [http.Hijacker].
func (w *responseWatch) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
		if w.timed {
			w.passage.held.Done(flow.Ignore)
		}
	}
	return conn, rw, err
}
