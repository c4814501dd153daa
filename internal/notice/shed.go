package notice

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
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

// Shed is the problem of a request that a gate has refused: status 503. If no retry is worth
// anything, the headers say so.
func Shed(h http.Header, rejection *flow.Rejection) Problem {
	if !rejection.Retry {
		h[RetryHeader] = []string{NoRetry}
		h[EnvoyHeader] = []string{"true"}
	}
	later := Later(rejection.RetryAfter)
	p := ReducedCapacity(later)
	p.Detail = Crowded
	if later == headgate.Never {
		p.Detail, p.RetryAfterMS = "The request needs more than can ever be in progress.", -1
	}
	return p
}

// Crowded is why a gate refuses, for whoever is refused: its numbers are the operator's.
const Crowded = "As much is in progress as can be served in time. The request was not begun."
