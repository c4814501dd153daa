package policybench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Plan is how much is measured.
type Plan struct {
	// Rounds is how often each cell is measured; the tables show medians.
	Rounds int
	// Slice is how long one measurement of a cell lasts.
	Slice time.Duration
	// Progress is told what is being measured; nil if nobody wants to know.
	Progress func(format string, args ...any)
}

// Full is the plan of a run for the record: about ten seconds.
func Full() Plan { return Plan{Rounds: 7, Slice: 100 * time.Millisecond} }

// Short is the plan of a run that shows whether everything works.
func Short() Plan { return Plan{Rounds: 1, Slice: 20 * time.Millisecond} }

// Cell is one kind of policy in one size.
type Cell struct {
	Kind  string
	Rules int
}

// Sample is one measurement of a cell.
type Sample struct {
	Matches int
	Elapsed time.Duration
	Allocs  uint64
}

// Nanos is the time of one match.
func (s Sample) Nanos() float64 { return float64(s.Elapsed.Nanoseconds()) / float64(s.Matches) }

// AllocsEach is the number of allocations for each match.
func (s Sample) AllocsEach() float64 { return float64(s.Allocs) / float64(s.Matches) }

// Outcome is what a run has measured.
type Outcome struct {
	Plan    Plan
	Samples map[Cell][]Sample
}

// Run measures every cell in each round. A policy that does not bind the request
// by one rule is an error.
func Run(ctx context.Context, plan Plan) (*Outcome, error) {
	o := &Outcome{Plan: plan, Samples: make(map[Cell][]Sample)}
	for round := range plan.Rounds {
		if plan.Progress != nil {
			plan.Progress("policy: round %d of %d", round+1, plan.Rounds)
		}
		for _, k := range Kinds() {
			for _, n := range Sizes() {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				set, err := k.Set(n)
				if err != nil {
					return nil, err
				}
				s, err := slice(set, k.Request(), plan.Slice)
				if err != nil {
					return nil, fmt.Errorf("%s, %d rules: %w", k.Name, n, err)
				}
				cell := Cell{k.Name, n}
				o.Samples[cell] = append(o.Samples[cell], s)
			}
		}
	}
	return o, nil
}

// batch is how many matches are made between two looks at the clock.
const batch = 256

// slice matches the request for about d.
func slice(set *policy.Set, request policy.Descriptor, d time.Duration) (Sample, error) {
	checks := make([]headgate.Check, 0, 8)
	checks, err := set.Match(request, 1, checks)
	if err == nil && len(checks) != 1 {
		err = fmt.Errorf("%d rules bind the request, must be 1", len(checks))
	}
	if err != nil {
		return Sample{}, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var s Sample
	start := time.Now()
	for s.Elapsed < d {
		for range batch {
			if checks, err = set.Match(request, 1, checks[:0]); err != nil {
				return s, err
			}
		}
		s.Matches += batch
		s.Elapsed = time.Since(start)
	}
	runtime.ReadMemStats(&after)
	s.Allocs = after.Mallocs - before.Mallocs
	return s, nil
}
