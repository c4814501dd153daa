package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// The problem types (RFC 9457) that the IETF's rate-limit draft defines.
const (
	TypeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TypeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// StatusClientGone is the status of an answer to a client that went away, as
// nginx logs it: nobody reads the answer, but what logs requests does.
const StatusClientGone = 499

// Problem is the body of a response that says why a request was not served, as
// application/problem+json.
type Problem struct {
	// Type is a URI that programs tell problems apart by; empty means that the
	// status says it all.
	Type string `json:"type,omitempty"`
	// Title is the problem in a few words, the same for each of its kind.
	Title string `json:"title"`
	// Status is the HTTP status of the response.
	Status int `json:"status"`
	// Detail is what happened this time, for people.
	Detail string `json:"detail,omitempty"`
	// ViolatedPolicies names the limits that denied, as the Draft11 headers do.
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	// RetryAfterMS is the time in milliseconds, rounded up, after which the
	// request may fit; -1 if it never will, 0 if nothing is known.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
}

// QuotaExceeded is the problem of a denial: status 429.
func QuotaExceeded(v *headgate.Verdict) Problem {
	p := Problem{
		Type:         TypeQuotaExceeded,
		Title:        "The assigned quota is exceeded",
		Status:       http.StatusTooManyRequests,
		RetryAfterMS: ceilMillis(v.RetryAfter),
	}
	items := v.Decisions
	for i := range items {
		if items[i].Allowed || items[i].Shadow || items[i].Limit == nil {
			continue
		}
		p.ViolatedPolicies = append(p.ViolatedPolicies, string(appendName(nil, items, i)))
	}
	if d := v.Deciding(); d != nil && d.Rule != nil && !d.Allowed {
		if d.RetryAfter == headgate.Never {
			p.Detail = fmt.Sprintf("The request costs more than rule %q can ever admit (%s).", d.Rule.Name(), d.Limit)
		} else if d.Limit.Algorithm == headgate.Penalty {
			p.Detail = fmt.Sprintf("Rule %q blocks who was denied too often (%s); the block ends in %v.", d.Rule.Name(), d.Limit, time.Duration(ceilMillis(d.RetryAfter))*time.Millisecond)
		} else {
			p.Detail = fmt.Sprintf("Rule %q admits %s; the request fits in %v.", d.Rule.Name(), d.Limit, time.Duration(ceilMillis(d.RetryAfter))*time.Millisecond)
		}
	}
	return p
}

// ReducedCapacity is the problem of a request that was turned away because
// nothing could be decided: status 503. retryAfter is when to come back.
func ReducedCapacity(retryAfter time.Duration) Problem {
	return Problem{
		Type:         TypeReducedCapacity,
		Title:        "Capacity is reduced for the moment",
		Status:       http.StatusServiceUnavailable,
		Detail:       "The rate limiter could not decide on the request.",
		RetryAfterMS: ceilMillis(max(0, retryAfter)),
	}
}

// Forbidden is the problem of a request that a policy's deny list turns away:
// status 403. It does not say which entry of the list did: the client is not to
// find its way around it.
func Forbidden() Problem {
	return Problem{Title: "The request is not allowed", Status: http.StatusForbidden}
}

// Write sends the problem as the response to r, without a body if that was a
// HEAD request. The response is marked as not to be stored; a Retry-After that
// is not there yet is set from RetryAfterMS.
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
		setRetryAfter(h, time.Duration(p.RetryAfterMS)*time.Millisecond)
	}
	w.WriteHeader(p.Status)
	if r.Method == http.MethodHead {
		return
	}
	// The client may be gone; there is nobody to tell.
	_, _ = w.Write(body)
}
