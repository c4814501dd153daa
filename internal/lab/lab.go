// Package lab has several algorithms decide about one trace of requests, side by side, as a
// store would: by the memory store, under a clock of the trace.
//
// # Basics
//
// [Run] takes a [Trace] and the changes of the limit, and returns a [Lane] for each algorithm.
// The pages of the dashboard and of the docs run it in the browser, compiled to WebAssembly
// from lab/wasm by `make lab`.
//
// # Caveats
//
// A trace is decided as if its requests never wait: what a leaky bucket delays is admitted
// with its delay.
package lab

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// The bounds of a [Trace].
const (
	MaxRequests = 5000
	MaxSamples  = 2000
)

// Request is one of the trace.
type Request struct {
	// At is when it comes, since the beginning.
	At time.Duration
	// Cost is how many units it takes: up to headgate.MaxCount.
	Cost int64
}

// Terms are the numbers that all algorithms have in common.
type Terms struct {
	// From is since when they hold. The first are from the beginning, whatever it says.
	From time.Duration
	// Count units are admitted in each Period. Burst is how many at once, for buckets.
	Count, Burst int64
	Period       time.Duration
}

// Trace is what happens.
type Trace struct {
	Requests []Request
	// Terms are those that hold one after the other, by From.
	Terms []Terms
	// Length is until when it is looked at, and Every how often: at most MaxSamples times.
	Length, Every time.Duration
}

// Answer is what became of a request.
type Answer struct {
	Allowed bool
	// Delay is how long an admitted one is held.
	Delay time.Duration
	// RetryAfter is how long a denied one has to wait, or headgate.Never.
	RetryAfter time.Duration
}

// Sample is how full a limit is at an instant.
type Sample struct {
	// Used units, those of a request at the same instant among them, count against the limit, which holds Capacity. Of several limits, it is
	// the one with the least left.
	Used, Capacity int64
	// Blocked says that nothing is admitted until a penalty ends.
	Blocked bool
}

// Lane is what one algorithm makes of a trace.
type Lane struct {
	Name string
	// Limits are the last ones, as they are written in rules.
	Limits  []string
	Answers []Answer
	Samples []Sample
}

// algorithms are those that are shown, by what they make of the terms.
var algorithms = []struct {
	name   string
	limits func(t Terms) []headgate.Limit
}{
	{"token_bucket", func(t Terms) []headgate.Limit {
		return []headgate.Limit{{Algorithm: headgate.TokenBucket, Count: t.Count, Period: t.Period, Burst: t.Burst}}
	}},
	{"leaky_bucket", func(t Terms) []headgate.Limit {
		return []headgate.Limit{{Algorithm: headgate.LeakyBucket, Count: t.Count, Period: t.Period, Burst: t.Burst}}
	}},
	{"fixed_window", func(t Terms) []headgate.Limit {
		return []headgate.Limit{{Algorithm: headgate.FixedWindow, Count: t.Count, Period: t.Period}}
	}},
	{"sliding_window", func(t Terms) []headgate.Limit {
		return []headgate.Limit{headgate.Sliding(t.Count, t.Period)}
	}},
	{"sliding_counter", func(t Terms) []headgate.Limit {
		return []headgate.Limit{{Algorithm: headgate.SlidingCounter, Count: t.Count, Period: t.Period}}
	}},
	// A tenth of the period may hold a third of the units.
	{"two_windows", func(t Terms) []headgate.Limit {
		return []headgate.Limit{headgate.Sliding(t.Count, t.Period), headgate.Sliding(max(t.Count/3, 1), max(t.Period/10, time.Second))}
	}},
	{"penalty", func(t Terms) []headgate.Limit {
		return []headgate.Limit{headgate.Sliding(t.Count, t.Period), headgate.Blocking(3, t.Period, t.Period, 4*t.Period)}
	}},
}

// begin is when traces begin on the store's clock: a midnight, so that windows which are
// aligned begin with the trace.
const begin = 1_763_683_200_000_000

// Run has all algorithms decide. The error is about the trace, or wraps
// [headgate.ErrInvalid]: a limit cannot be.
func Run(t Trace) ([]Lane, error) {
	if len(t.Terms) == 0 || len(t.Requests) > MaxRequests || t.Every <= 0 || t.Length/t.Every > MaxSamples {
		return nil, headgate.Invalid("lab", "trace", "it has %d requests and %d terms, and is sampled every %v of %v; must have %d requests, 1 term and %d samples at most",
			len(t.Requests), len(t.Terms), t.Every, t.Length, MaxRequests, MaxSamples)
	}
	requests := slices.Clone(t.Requests)
	slices.SortStableFunc(requests, func(a, b Request) int { return int(a.At - b.At) })
	lanes := make([]Lane, 0, len(algorithms))
	for i := range algorithms {
		lane, err := run(i, t, requests)
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, lane)
	}
	return lanes, nil
}

// run has one algorithm decide.
func run(i int, t Trace, requests []Request) (Lane, error) {
	lane := Lane{Name: algorithms[i].name}
	rules := make([]*headgate.Rule, len(t.Terms))
	for n, terms := range t.Terms {
		var err error
		// Rules of one name share their counters: what was used stays used.
		if rules[n], err = headgate.NewRule(lane.Name, algorithms[i].limits(terms)...); err != nil {
			return lane, err
		}
	}
	now := int64(begin)
	store := memory.New(memory.Clock(func() int64 { return now }), memory.MaxBytes(memory.MinMaxBytes))
	current := 0
	ask := func(op headgate.Op, at time.Duration, cost int64) ([]headgate.Decision, error) {
		now = begin + at.Microseconds()
		for current+1 < len(t.Terms) && t.Terms[current+1].From <= at {
			current++
		}
		return store.Take(context.Background(), op, []headgate.Check{{Rule: rules[current], Key: "lab", Cost: cost}}, nil)
	}
	next := time.Duration(0)
	sample := func(until time.Duration) error {
		for ; next <= until && next <= t.Length; next += t.Every {
			decisions, err := ask(headgate.OpPeek, next, 1)
			if err != nil {
				return err
			}
			lane.Samples = append(lane.Samples, fullest(decisions))
		}
		return nil
	}
	for _, r := range requests {
		if err := sample(r.At - 1); err != nil {
			return lane, err
		}
		decisions, err := ask(headgate.OpTake, r.At, r.Cost)
		if err != nil {
			return lane, err
		}
		v := headgate.NewVerdict(decisions)
		lane.Answers = append(lane.Answers, Answer{Allowed: v.Allowed, Delay: v.Delay, RetryAfter: v.RetryAfter})
	}
	if err := sample(t.Length); err != nil {
		return lane, err
	}
	for _, l := range rules[len(rules)-1].Limits() {
		lane.Limits = append(lane.Limits, l.String())
	}
	return lane, nil
}

// fullest is how full the limit is that has the least left.
func fullest(decisions []headgate.Decision) (s Sample) {
	for i := range decisions {
		d := &decisions[i]
		if d.Limit.Algorithm == headgate.Penalty {
			s.Blocked = !d.Allowed
			continue
		}
		capacity := d.Limit.Capacity()
		if used := capacity - d.Remaining; s.Capacity == 0 || capacity-used < s.Capacity-s.Used {
			s.Used, s.Capacity = used, capacity
		}
	}
	return s
}
