package memorybench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/workload"
)

// Plan is how much is measured.
type Plan struct {
	// Rounds is how often each cell is measured; the tables show medians.
	Rounds int
	// Slice is how long one measurement of a cell lasts.
	Slice time.Duration
	// Keys is how many keys are live in the workloads that have many.
	Keys int
	// Progress is told what is being measured; nil if nobody wants to know.
	Progress func(format string, args ...any)
}

// Full is the plan of a run for the record: about four minutes on two cores.
func Full() Plan { return Plan{Rounds: 5, Slice: 400 * time.Millisecond, Keys: 1_000_000} }

// Short is the plan of a run that shows whether everything works.
func Short() Plan { return Plan{Rounds: 1, Slice: 100 * time.Millisecond, Keys: 100_000} }

// The limits of the workloads. A year keeps the wide buckets from ever being
// full again between two questions, so that no contender may forget a key; the
// counts keep them from running dry. One unit an hour denies from the second
// question on.
const year = 365 * 24 * time.Hour

var (
	narrow     = workload.Limit{Count: 1, Period: time.Hour}
	manyLimits = workload.Limits{{Count: 10_000_000, Period: year}, narrow}
	hotLimits  = workload.Limits{{Count: 1_000_000_000, Period: year}, narrow}
)

// Cell is one workload on one number of cores.
type Cell struct {
	Workload string
	Cores    int
}

// Workloads are the names of the workloads, in the order of the tables.
func Workloads() []string { return []string{hotAdmitted, hotDenied, uniform, zipf} }

const (
	hotAdmitted = "hot key, admitted"
	hotDenied   = "hot key, denied"
	uniform     = "uniform keys"
	zipf        = "zipf keys"
)

// Sample is one measurement of a [Cell].
type Sample struct {
	Decisions int
	Elapsed   time.Duration
	Allocs    uint64 // objects allocated meanwhile
}

// Nanos is the time that passed for each decision, on all cores together: at
// two cores, half of what each decision took.
func (s Sample) Nanos() float64 { return float64(s.Elapsed.Nanoseconds()) / float64(s.Decisions) }

// AllocsEach is the number of allocations for each decision.
func (s Sample) AllocsEach() float64 { return float64(s.Allocs) / float64(s.Decisions) }

// Footprint is what a contender costs by its mere presence, with all keys live.
type Footprint struct {
	// BytesPerKey is the heap in use over the number of keys: everything the
	// contender has kept, its copy of the key's text included.
	BytesPerKey float64
	// Collection is how long one full garbage collection takes.
	Collection time.Duration
}

// Result is all that was measured of one contender.
type Result struct {
	Contender  Contender
	Samples    map[Cell][]Sample
	Footprints []Footprint
}

// Outcome is what a run has measured.
type Outcome struct {
	Plan    Plan
	Cores   []int
	Results []Result
	// Denied is the share of denials in each workload, 0 to 1.
	Denied map[string]float64
}

// Run measures all contenders, round by round, each time beginning with another
// one. It sets GOMAXPROCS while it runs. A contender that admits or denies
// wrongly even once is an error: its time would be worth nothing.
func Run(ctx context.Context, plan Plan, contenders []Contender) (*Outcome, error) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	o := &Outcome{Plan: plan, Cores: []int{1}}
	if runtime.NumCPU() > 1 {
		o.Cores = append(o.Cores, 2)
	}
	for _, c := range contenders {
		o.Results = append(o.Results, Result{Contender: c, Samples: map[Cell][]Sample{}})
	}
	// Twice as many places as keys: most keys appear, and hardly any twice in a
	// row.
	length := 1
	for length < 2*plan.Keys {
		length *= 2
	}
	sequences := map[string]*workload.Sequence{
		hotAdmitted: workload.Hot(workload.Wide),
		hotDenied:   workload.Hot(workload.Narrow),
		uniform:     workload.Uniform(plan.Keys, length, 1),
		zipf:        workload.Zipf(plan.Keys, length, 1),
	}
	o.Denied = map[string]float64{}
	for name, s := range sequences {
		o.Denied[name] = s.NarrowShare()
	}
	for round := range plan.Rounds {
		for i := range o.Results {
			r := &o.Results[(i+round)%len(o.Results)]
			if plan.Progress != nil {
				plan.Progress("memory: round %d of %d: %s", round+1, plan.Rounds, r.Contender.Name)
			}
			if err := r.measure(ctx, plan, o.Cores, sequences); err != nil {
				return nil, fmt.Errorf("%s: %w", r.Contender.Name, err)
			}
		}
	}
	return o, nil
}

// measure adds one sample to each cell, and a footprint. The hot key is measured
// on a heap of its own.
func (r *Result) measure(ctx context.Context, plan Plan, cores []int, sequences map[string]*workload.Sequence) error {
	footprint, err := r.filled(manyLimits, plan.Keys, func(l *Limiter) error {
		return r.slices(ctx, plan.Slice, l, cores, sequences, uniform, zipf)
	})
	if err != nil {
		return err
	}
	r.Footprints = append(r.Footprints, footprint)
	// As many keys as it takes to have one of each class.
	_, err = r.filled(hotLimits, workload.NarrowEvery, func(l *Limiter) error {
		return r.slices(ctx, plan.Slice, l, cores, sequences, hotAdmitted, hotDenied)
	})
	return err
}

// filled hands a fresh limiter with so many keys to use, and closes it.
func (r *Result) filled(q workload.Limits, keys int, use func(*Limiter) error) (Footprint, error) {
	l, footprint, err := fill(r.Contender, q, keys)
	if err != nil {
		return Footprint{}, err
	}
	return footprint, errors.Join(use(l), l.close())
}

func (r *Result) slices(ctx context.Context, d time.Duration, l *Limiter, cores []int, sequences map[string]*workload.Sequence, names ...string) error {
	for _, name := range names {
		for _, n := range cores {
			if err := ctx.Err(); err != nil {
				return err
			}
			s, err := slice(l, sequences[name], n, d)
			if err != nil {
				return fmt.Errorf("%s on %d cores: %w", name, n, err)
			}
			cell := Cell{name, n}
			r.Samples[cell] = append(r.Samples[cell], s)
		}
	}
	return nil
}

// fill opens the contender and asks it once about each of the first keys.
func fill(c Contender, q workload.Limits, keys int) (*Limiter, Footprint, error) {
	runtime.GC()
	runtime.GC() // The first one may have run finalizers, whose garbage is left.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l, err := c.Open(q)
	if err != nil {
		return nil, Footprint{}, err
	}
	for i := range keys {
		class, key := workload.ClassOf(i), workload.Key(i)
		if l.Add != nil {
			if err := l.Add(class, key); err != nil {
				return nil, Footprint{}, errors.Join(fmt.Errorf("adding key %d: %w", i, err), l.close())
			}
		}
		allowed, err := l.Take(class, key)
		if err == nil && !allowed && c.Role != Floor {
			err = errors.New("the first request was denied")
		}
		if err != nil {
			return nil, Footprint{}, errors.Join(fmt.Errorf("key %d (%s): %w", i, class, err), l.close())
		}
	}
	runtime.GC()
	start := time.Now()
	runtime.GC()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	held := float64(after.HeapAlloc) - float64(before.HeapAlloc)
	runtime.KeepAlive(l)
	return l, Footprint{BytesPerKey: held / float64(keys), Collection: took}, nil
}

// batch is how many decisions are made between two looks at the clock, so that
// looking costs nothing that could be seen.
const batch = 512

// slice measures for about d on n cores, with one goroutine for each.
func slice(l *Limiter, s *workload.Sequence, n int, d time.Duration) (Sample, error) {
	runtime.GOMAXPROCS(n)
	runtime.GC()
	var (
		before, after runtime.MemStats
		wg            sync.WaitGroup
		counts        = make([]int, n)
		errs          = make([]error, n)
	)
	runtime.ReadMemStats(&before)
	start := time.Now()
	for w := range n {
		wg.Go(func() {
			counts[w], errs[w] = work(l, s, w*s.Len()/n, start, d)
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	sample := Sample{Elapsed: elapsed, Allocs: after.Mallocs - before.Mallocs}
	for _, c := range counts {
		sample.Decisions += c
	}
	return sample, errors.Join(errs...)
}

// work asks about one key after the other, from place at on, until d has passed
// since start.
func work(l *Limiter, s *workload.Sequence, at int, start time.Time, d time.Duration) (int, error) {
	done := 0
	for done == 0 || time.Since(start) < d {
		for range batch {
			class, key := s.At(at)
			allowed, err := l.Take(class, key)
			if err != nil {
				return done, fmt.Errorf("a %s key after %d decisions: %w", class, done, err)
			}
			if allowed != (class == workload.Wide) {
				return done, fmt.Errorf("a %s key after %d decisions: allowed is %t", class, done, allowed)
			}
			at++
			done++
		}
	}
	return done, nil
}
