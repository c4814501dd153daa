package notice

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/headgate/headgate"
)

// The headers that mark an answer as one that is not to be retried, by anybody on its way.
const (
	// RetryHeader is Headgate's own; its value is NoRetry.
	RetryHeader = "Headgate-Retry"
	NoRetry     = "no"
	// EnvoyHeader keeps Envoy from retrying, whatever its retry policy says, unless that
	// names envoy-ratelimited.
	EnvoyHeader = "X-Envoy-Ratelimited"
)

// ForbidRetry sets both headers.
func ForbidRetry(h http.Header) {
	h[RetryHeader] = []string{NoRetry}
	h[EnvoyHeader] = []string{"true"}
}

const (
	// unknownLater is when to come again if a gate cannot tell.
	unknownLater = time.Second
	// leastSpread is over how long those at least are spread who were refused together.
	// Retry-After has whole seconds, so that less would do little.
	leastSpread = 2 * time.Second
)

// Later is when somebody may come again who a gate says may come after d: then or later,
// by chance, so that not all come back in one moment. Never stays Never.
func Later(d time.Duration) time.Duration {
	if d == headgate.Never {
		return d
	}
	if d <= 0 {
		d = unknownLater
	}
	return d + rand.N(max(d/2, leastSpread))
}

// Shed is the problem of a request that was turned away because as much is in progress as
// can be served: status 503. retryAfter is when to come back.
func Shed(retryAfter time.Duration) Problem {
	p := ReducedCapacity(retryAfter)
	p.Detail = "As much is in progress as can be served in time. The request was not begun."
	if retryAfter == headgate.Never {
		p.Detail = "The request needs more than can ever be in progress."
		p.RetryAfterMS = -1
	}
	return p
}
