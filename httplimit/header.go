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
	// RateLimitTriple writes RateLimit-Limit, RateLimit-Remaining and
	// RateLimit-Reset, as drafts of the IETF before the eighth have them. In a
	// denial the reset is the moment of Retry-After.
	RateLimitTriple = notice.RateLimitTriple
	// Draft11 writes RateLimit-Policy and RateLimit with one item for each
	// limit, as draft-ietf-httpapi-ratelimit-headers-11 has them.
	Draft11 = notice.Draft11
	// NoHeaders writes no header but the Retry-After of a denial.
	NoHeaders = notice.NoHeaders
)

// ParseDialect returns the dialect of that name. The error is a
// [*headgate.InvalidError].
func ParseDialect(name string) (Dialect, error) { return notice.ParseDialect(name) }

// WriteHeaders tells the verdict in the dialect's headers. A denial also gets
// Cache-Control: no-store and, unless its cost can never fit, Retry-After. A
// verdict without decisions is told by no header. The response must not have
// been started yet.
func WriteHeaders(h http.Header, dialect Dialect, v *headgate.Verdict) {
	notice.WriteHeaders(h, dialect, v)
}
