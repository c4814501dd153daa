package simulate

import (
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/flow"
)

// step is the time between two points of a result.
const step = 100 * time.Millisecond

// Point is what happened in one step of time.
type Point struct {
	At time.Duration
	// Limit is the gate's limit at that time, or NaN if it has none. InServer is how many requests
	// were in the server.
	Limit    float64
	InServer int
	// Good is how much work was answered in time during the step, as multiples of [Server.Work].
	Good float64
}

// Share is the result for some of the calls.
type Share struct {
	// Calls is how many calls were made, Tries how many attempts they took, Refused how many
	// attempts the gate refused, and Good how many calls were answered in time.
	Calls, Tries, Refused, Good int
}

// Result is the result of a simulation. Its numbers are for the time that the scenario measures.
type Result struct {
	Scenario Scenario
	Subject  string
	Points   []Point
	All      Share
	Classes  [flow.Classes]Share
	Tenants  map[string]*Share
	// latencies has the times from sending to the answer, or to giving up, of the attempts that
	// were admitted and did not fail at once.
	latencies []time.Duration
	sorted    bool
}

func newResult(s Scenario, subject string) *Result {
	return &Result{Scenario: s, Subject: subject, Tenants: make(map[string]*Share)}
}

// count calls f with each share that the call belongs to, if it is measured.
func (r *Result) count(c *call, f func(*Share)) {
	if c.came < r.Scenario.From || c.came >= r.Scenario.To {
		return
	}
	tenant := r.Tenants[c.load.Tenant]
	if tenant == nil {
		tenant = &Share{}
		r.Tenants[c.load.Tenant] = tenant
	}
	f(&r.All)
	f(&r.Classes[c.load.Class.Rank()])
	f(tenant)
}

func (r *Result) came(c *call)    { r.count(c, func(s *Share) { s.Calls++ }) }
func (r *Result) sent(c *call)    { r.count(c, func(s *Share) { s.Tries++ }) }
func (r *Result) refused(c *call) { r.count(c, func(s *Share) { s.Refused++ }) }

func (r *Result) good(a *attempt, now time.Duration) {
	if i := int(now / step); i < len(r.Points) {
		r.Points[i].Good += a.work
	}
	r.count(a.call, func(s *Share) { s.Good++ })
	r.took(a, now)
}

// took records how long an admitted attempt took.
func (r *Result) took(a *attempt, now time.Duration) {
	if a.came >= r.Scenario.From && a.came < r.Scenario.To {
		r.latencies = append(r.latencies, now-a.sent)
		r.sorted = false
	}
}

func (r *Result) look(at time.Duration, limit float64, inServer int) {
	r.Points = append(r.Points, Point{At: at, Limit: limit, InServer: inServer})
}

// Latency returns the given quantile, 0 to 1, of the time from sending an attempt to its answer, or
// to its deadline if that came first. It counts attempts that were admitted and did not fail at
// once, and is zero if there are none.
func (r *Result) Latency(quantile float64) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	if !r.sorted {
		slices.Sort(r.latencies)
		r.sorted = true
	}
	return r.latencies[int(quantile*float64(len(r.latencies)-1))]
}

// Goodput returns how much work was answered in time between two instants, as a share of what the
// server can do.
func (r *Result) Goodput(from, to time.Duration) float64 {
	good, can := 0.0, 0.0
	for _, p := range r.Points {
		if p.At < from || p.At >= to {
			continue
		}
		good += p.Good
		can += r.Scenario.Server.capacity(p.At) * step.Seconds()
	}
	return good / can
}

// Limits returns the smallest, the mean and the largest limit between two instants.
func (r *Result) Limits(from, to time.Duration) (least, mean, most float64) {
	least, most = math.Inf(1), math.Inf(-1)
	n := 0.0
	for _, p := range r.Points {
		if p.At < from || p.At >= to {
			continue
		}
		least, most = min(least, p.Limit), max(most, p.Limit)
		mean += p.Limit
		n++
	}
	return least, mean / n, most
}

// Reaches returns how long it takes, beginning at from, until the limit is within the given share
// of the best one ([Best]), on average over a second. It is negative if that does not happen before
// to.
func (r *Result) Reaches(from, to time.Duration, share float64) time.Duration {
	return r.first(from, to, func(at time.Duration) bool {
		_, mean, _ := r.Limits(at, at+time.Second)
		optimum := Best(r.Scenario.Server.Workers(at))
		return math.Abs(mean-optimum) <= share*optimum
	})
}

// Recovers returns how long it takes, beginning at from, until the goodput over half a second is at
// least the given share of the server's capacity, and stays so on average until to. It is negative
// if that does not happen.
func (r *Result) Recovers(from, to time.Duration, share float64) time.Duration {
	return r.first(from, to, func(at time.Duration) bool {
		return r.Goodput(at, at+time.Second/2) >= share && r.Goodput(at, to) >= share
	})
}

// first returns how long it takes, beginning at from, until holds returns true.
func (r *Result) first(from, to time.Duration, holds func(at time.Duration) bool) time.Duration {
	for at := from; at < to-time.Second; at += step {
		if holds(at) {
			return at - from
		}
	}
	return -1
}

// Jain returns Jain's index of fairness for the good calls of the tenants: 1 if all had the same
// number, and 1/n if one of n tenants had all of them. It is 0 if there were none.
func (r *Result) Jain() float64 {
	var sum, squares float64
	for _, s := range r.Tenants {
		sum += float64(s.Good)
		squares += float64(s.Good) * float64(s.Good)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(r.Tenants)) * squares)
}
