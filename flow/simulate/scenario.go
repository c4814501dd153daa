package simulate

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/flow"
)

// Scenario is a server, its callers, and how long the simulation lasts. The same scenario gives
// each gate the same requests at the same instants, with the same amounts of work.
type Scenario struct {
	Name string
	// Seed determines everything that is random.
	Seed uint64
	// Length is for how long requests come.
	Length time.Duration
	// From and To bound the time that is measured; a request counts by its arrival. If To is zero,
	// it is Length.
	From, To time.Duration
	Server   Server
	Loads    []Load
}

// Server is a model of a server: a number of workers, with an unbounded first-come, first-served
// queue in front of them, or shared by all requests.
type Server struct {
	// Workers is how many requests are worked on at a time.
	Workers func(at time.Duration) int
	// Shared says that all requests in the server share its workers evenly, as goroutines share
	// processors. None waits, and all become slower together.
	Shared bool
	// Work is how long a request of the size 1 takes once a worker has it. Spread is how much that
	// varies for loads without sizes of their own: the standard deviation of its logarithm.
	Work   func(at time.Duration) time.Duration
	Spread float64
	// Fails says whether a request fails at once, within a millisecond, when the given number of
	// requests are in the server. Nil means that none does. The gate is then told Ignore.
	Fails func(at time.Duration, inServer int) bool
	// Stalls is the share of requests that are never answered, and Down the share that fails with
	// Overload within a millisecond, whatever the load: those that a balancer sends to a server that is
	// gone. Nil means none.
	Stalls, Down func(at time.Duration) float64
}

// Load is a stream of requests that come at random at a given rate.
type Load struct {
	// Rate is how many requests come per second.
	Rate func(at time.Duration) float64
	// Peak is the maximum of Rate.
	Peak float64
	// Sizes says how much work its requests are.
	Sizes Sizes
	// Tenant and Class are those of its requests.
	Tenant string
	Class  flow.Class
	// Deadline is how long a caller waits for its answer. At that time, the permit is given back
	// with Overload. Work that has begun continues.
	Deadline time.Duration
	// Leaves says that callers give no reason when they leave at their deadlines: the permits are
	// given back with Canceled.
	Leaves bool
	// Tries is how often a request is sent at most if it fails, with a Pause in between. Zero means
	// once.
	Tries int
	Pause time.Duration
	// Obedient callers do not retry if the rejection says so; see Rejection.Retry.
	Obedient bool
}

// Sizes is how much work requests are, as multiples of [Server.Work]. The zero Sizes is a log-normal
// distribution with the mean 1 and the server's spread.
type Sizes struct {
	// Draw returns the size of a request that comes at the given time.
	Draw func(at time.Duration, random *rand.Rand) float64
	// Mean returns the mean of Draw.
	Mean func(at time.Duration) float64
}

// Mixed returns the sizes of a mix of two kinds of requests: cheap ones, and a share of dear ones.
func Mixed(cheap, dear float64, share func(at time.Duration) float64) Sizes {
	return Sizes{
		Draw: func(at time.Duration, random *rand.Rand) float64 {
			if random.Float64() < share(at) {
				return dear
			}
			return cheap
		},
		Mean: func(at time.Duration) float64 { return cheap + share(at)*(dear-cheap) },
	}
}

// Pareto returns sizes with a heavy tail and the mean 1. The chance of a size above x decreases with
// the power alpha of x, which is above 1. Up to 2, the variance is infinite.
func Pareto(alpha float64) Sizes {
	least := (alpha - 1) / alpha
	return Sizes{
		Draw: func(_ time.Duration, random *rand.Rand) float64 {
			return least * math.Exp(random.ExpFloat64()/alpha)
		},
		Mean: Constant(1.0),
	}
}

// logNormal returns sizes with the mean 1 and that standard deviation of the logarithm.
func logNormal(spread float64) Sizes {
	return Sizes{
		Draw: func(_ time.Duration, random *rand.Rand) float64 {
			return math.Exp(random.NormFloat64()*spread - spread*spread/2)
		},
		Mean: Constant(1.0),
	}
}

// capacity returns how much work the server gets done per second at that time.
func (s *Server) capacity(at time.Duration) float64 {
	return float64(s.Workers(at)) / s.Work(at).Seconds()
}

// Constant returns a quantity that is always v.
func Constant[T any](v T) func(time.Duration) T { return func(time.Duration) T { return v } }

// share returns what f is at that time, or 0 if f is nil.
func share(f func(time.Duration) float64, at time.Duration) float64 {
	if f == nil {
		return 0
	}
	return f(at)
}

// Between returns a quantity that is inner between the times from and to, and outer otherwise.
func Between[T any](from, to time.Duration, inner, outer T) func(time.Duration) T {
	return func(at time.Duration) T {
		if at >= from && at < to {
			return inner
		}
		return outer
	}
}
