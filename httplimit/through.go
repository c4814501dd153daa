package httplimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/notice"
)

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
//   - Everything else says nothing about load, and is [flow.Ignore]: other answers of 400 and
//     more, a panic, a client that has gone, an answer that was flushed before it was complete,
//     and a request for more than a quarter of whose time the server waited for the client.
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
	case errors.Is(err, context.Canceled), admission.IsEvents(p.header["Content-Type"]):
		return flow.Ignore
	case err != nil, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return flow.Overload
	case status >= http.StatusOK && status < http.StatusBadRequest:
		return flow.Success
	}
	return flow.Ignore
}

// shed answers a request that the gate has refused.
func (m *middleware) shed(w http.ResponseWriter, r *http.Request, rejection *flow.Rejection) {
	if denied, ok := errors.AsType[*headgate.DeniedError](rejection.Cause); ok && denied.Decision.Limit != nil {
		v := headgate.NewVerdict([]headgate.Decision{denied.Decision})
		WriteHeaders(w.Header(), m.dialect, &v)
		m.denied(w, r, v)
		return
	}
	p := Problem(notice.Shed(w.Header(), rejection))
	p.Write(w, r)
}
