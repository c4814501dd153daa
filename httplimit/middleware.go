package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/notice"
)

// Gate decides requests for frameworks whose middleware is not a func(http.Handler) http.Handler.
// If yours is, use [New]. A Gate is immutable and safe for concurrent use. Make one with [NewGate].
type Gate struct {
	settings settings
	gate     *admission.Gate[*http.Request]
}

// serve decides one request, and answers it or lets next answer it. If the end of the request does
// not matter, next gets the original writer, so that flushing, hijacking and everything else works.
func (g *Gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	p, ok := g.Enter(w, r)
	switch {
	case !ok:
	case p == nil:
		next.ServeHTTP(w, r)
	default:
		p.serve(w, r, next)
	}
}

// Enter is Admit for requests whose end matters: for their charge, or for a permit. It returns a
// passage that must be told of the end, or nil if the end does not matter. A caller that gets a
// passage must end it, even if the handler panics.
func (g *Gate) Enter(w http.ResponseWriter, r *http.Request) (p *Passage, ok bool) {
	a := g.gate.Try(r.Context(), r, 0)
	ok = g.answer(w, r, a)
	if a.Passage != nil {
		p = &Passage{g, a.Passage, r, w.Header()}
	}
	a.Free()
	return p, ok
}

// answer tells the client what was decided, and reports whether the request may go on.
func (g *Gate) answer(w http.ResponseWriter, r *http.Request, a *admission.Attempt[*http.Request]) (ok bool) {
	switch a.Outcome {
	case admission.Passed:
		WriteHeaders(w.Header(), g.settings.dialect, &a.Verdict)
		if a.Rules != nil {
			notice.WriteWarning(w.Header(), g.settings.dialect, &a.Verdict, a.Rules)
		}
	case admission.Open:
		if g.settings.unenforced != "" {
			w.Header()[g.settings.unenforced] = []string{"store-unavailable"}
		}
	case admission.Busy:
		p := Problem(notice.InProgress(a.Refusal))
		p.Write(w, r)
		return false
	case admission.Denied:
		WriteHeaders(w.Header(), g.settings.dialect, &a.Verdict)
		g.settings.denied(w, r, a.Verdict)
		return false
	case admission.Shed:
		g.shed(w, r, a.Rejection)
		return false
	default:
		g.refuse(w, r, a)
		return false
	}
	return true
}

// refuse answers a request for which there is no verdict.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, a *admission.Attempt[*http.Request]) {
	p := Problem{Title: "The request could not be handled", Status: http.StatusInternalServerError}
	switch a.Outcome {
	case admission.Ended:
		if !errors.Is(a.Err, context.DeadlineExceeded) {
			w.WriteHeader(StatusClientGone)
			return
		}
		p = Problem(notice.ReducedCapacity(admission.UnavailableFor))
		p.Detail = "The request's deadline came before the rate limiter's decision."
	case admission.Unavailable:
		p = Problem(notice.ReducedCapacity(admission.UnavailableFor))
	case admission.Lacking:
		p = g.nobody(a.Entry)
	case admission.Unclear:
		p = Problem(notice.Ambiguous(a.Why))
	case admission.TooLong:
		p = Problem(notice.TooLong(a.Entry))
	case admission.Listed:
		p = Problem(notice.Forbidden())
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("Www-Authenticate", g.settings.keys.Challenge())
	}
	p.Write(w, r)
}

// nobody is the problem document for a request without an identity.
func (g *Gate) nobody(entry string) Problem {
	p := Problem{Title: "The request has no identity", Status: http.StatusUnauthorized}
	switch entry {
	case factAPIKey.Name:
		p.Detail = "Send an API key in the header " + strings.Join(g.settings.keys.Names(), " or ") + "."
	case "user":
		p.Detail = "The request comes from no user who is signed in."
	default:
		p.Status = http.StatusBadRequest
		p.Detail = fmt.Sprintf("The request has no %s, which its limit is counted by.", entry)
	}
	return p
}

// Admit reports whether the request may go on. If so, it has set the headers that tell the client
// its limits. If not, it has answered the request, and nothing more may be written to w. Admit
// waits for the delay of a leaky bucket. It does not read the request's body, unless a function of
// the options does.
//
// Admit ignores how a request ends, so [Settle] and the rules of a policy that charge by the
// outcome have no effect, and bounds on what is in progress count the request only while Admit
// runs. Use Enter for these.
func (g *Gate) Admit(w http.ResponseWriter, r *http.Request) bool {
	p, ok := g.Enter(w, r)
	if p != nil {
		p.held.Leave()
	}
	return ok
}

// Dialect is the set of headers that tell a client its limits. The zero Dialect is
// XRateLimit. Its String method returns the name that it has in configuration:
// "x-ratelimit", "ratelimit-triple", "draft-11" or "none".
type Dialect = notice.Dialect

const (
	// XRateLimit writes X-RateLimit-Limit, X-RateLimit-Remaining and
	// X-RateLimit-Reset for the deciding limit: its capacity, what is left of
	// it, and the seconds until it is fully free again.
	XRateLimit = notice.XRateLimit
	// RateLimitTriple writes RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, as in the
	// drafts of the IETF before the eighth. In a denial, the reset is the same time as Retry-After.
	RateLimitTriple = notice.RateLimitTriple
	// Draft11 writes RateLimit-Policy and RateLimit with one item for each limit, as in
	// draft-ietf-httpapi-ratelimit-headers-11.
	Draft11 = notice.Draft11
	// NoHeaders writes only the Retry-After of a denial.
	NoHeaders = notice.NoHeaders
)

// ParseDialect returns the dialect of that name. The error is a
// [*headgate.InvalidError].
func ParseDialect(name string) (Dialect, error) { return notice.ParseDialect(name) }

// WriteHeaders sets the dialect's headers for the verdict. For a denial it also sets Cache-Control:
// no-store and, unless the cost can never fit, Retry-After. For a verdict without decisions it sets
// nothing. Call it before the response is started.
func WriteHeaders(h http.Header, dialect Dialect, v *headgate.Verdict) {
	notice.WriteHeaders(h, dialect, v)
}

// The problem types (RFC 9457) that the IETF's rate-limit draft defines.
const (
	TypeQuotaExceeded   = notice.TypeQuotaExceeded
	TypeReducedCapacity = notice.TypeReducedCapacity
)

// StatusClientGone is the status of an answer to a client that has gone, as nginx logs it. The
// client does not read it, but it appears in request logs.
const StatusClientGone = 499

// Problem is the body of a response that says why a request was not served
// (application/problem+json).
type Problem struct {
	// Type is a URI by which programs distinguish problems. Empty means that the status says
	// enough.
	Type string `json:"type,omitempty"`
	// Title describes the problem in a few words, the same for each problem of its type.
	Title string `json:"title"`
	// Status is the HTTP status of the response.
	Status int `json:"status"`
	// Detail says what happened in this case, for people.
	Detail string `json:"detail,omitempty"`
	// ViolatedPolicies names the limits that denied, as the Draft11 headers do.
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	// RetryAfterMS is the time in milliseconds, rounded up, after which the
	// request may fit; -1 if it never will, 0 if nothing is known.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
}

// QuotaExceeded is the problem for a denial, with status 429.
func QuotaExceeded(v *headgate.Verdict) Problem { return Problem(notice.QuotaExceeded(v)) }

// Write sends the problem as the response to r, without a body if r is a HEAD request. The response
// is marked as not to be stored. Retry-After is set from RetryAfterMS, unless it is set already.
func (p *Problem) Write(w http.ResponseWriter, r *http.Request) {
	body, err := json.Marshal(p)
	if err != nil {
		http.Error(w, http.StatusText(p.Status), p.Status)
		return
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if p.RetryAfterMS > 0 && h["Retry-After"] == nil {
		notice.SetRetryAfter(h, time.Duration(p.RetryAfterMS)*time.Millisecond)
	}
	w.WriteHeader(p.Status)
	if r.Method == http.MethodHead {
		return
	}
	// The client may be gone; there is nobody to tell.
	_, _ = w.Write(body)
}
