package simulate

import (
	"time"

	"github.com/headgate/headgate/flow"
)

// Scenario is a server, those who call it, and how long it all lasts. The same
// scenario gives each gate the same requests at the same instants, with the same
// demands on the server.
type Scenario struct {
	Name string
	// Seed decides on everything that is random.
	Seed uint64
	// Length is how long requests come.
	Length time.Duration
	// From and To bound the time that is measured, by when requests came. A To of
	// zero is the Length.
	From, To time.Duration
	Server   Server
	Loads    []Load
}

// Server is a model of what does the work: so many workers, in front of which
// requests wait first come, first served, without bound.
type Server struct {
	// Workers is how many requests are worked on at a time.
	Workers func(at time.Duration) int
	// Work is how long a request takes on average once it is worked on, and Spread how
	// far that differs: the standard deviation of its logarithm.
	Work   func(at time.Duration) time.Duration
	Spread float64
	// Fails says whether a request fails at once, within a millisecond, where so many
	// are in the server; nil never does. A gate is told Ignore.
	Fails func(at time.Duration, inServer int) bool
	// Stalls is the share of requests that are never answered, whatever the load.
	Stalls float64
}

// Load is a stream of requests that come at random with a given rate.
type Load struct {
	// Rate is how many come in a second.
	Rate func(at time.Duration) float64
	// Peak is the highest that Rate ever is.
	Peak float64
	// Tenant and Class are those of its requests.
	Tenant string
	Class  flow.Class
	// Deadline is how long a caller waits for its answer. Work that has begun goes on
	// without it. The permit is given back with Overload at that time.
	Deadline time.Duration
	// Tries is how often a request is sent at most if it fails, with a Pause in
	// between. Zero means once.
	Tries int
	Pause time.Duration
	// Obedient callers do not try again what a rejection says not to.
	Obedient bool
}

// Constant is a quantity that does not change.
func Constant[T any](v T) func(time.Duration) T { return func(time.Duration) T { return v } }

// Between is a quantity that is inner from a time on until another, and outer else.
func Between[T any](from, to time.Duration, inner, outer T) func(time.Duration) T {
	return func(at time.Duration) T {
		if at >= from && at < to {
			return inner
		}
		return outer
	}
}
