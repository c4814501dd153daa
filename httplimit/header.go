package httplimit

import (
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/notice"
)

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
