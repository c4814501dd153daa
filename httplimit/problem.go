package httplimit

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/notice"
)

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
