package limiterbench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
)

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

// The workloads, in the order of the tables. One on n cores is the condition 10 × workload + n.
const (
	hotAdmitted = iota
	hotDenied
	uniform
	zipf
)

var workloads = []string{"hot key, admitted", "hot key, denied", "uniform keys", "zipf keys"}

func cell(workload, cores int) int { return 10*workload + cores }

// live is the condition that all keys are live. Its sample is what a contender costs by its mere
// presence: the heap in use, which is everything that the contender has kept, with its copy of the
// key's text, and in Elapsed how long one full garbage collection takes.
const live = -1

// memoryRun is what is measured in memory.
type memoryRun struct {
	measure.Plan
	cores      []int
	sequences  []*workload.Sequence // by workload
	contenders []contender
	rows       measure.Rows
}

// Memory compares limiters that keep their counters in the process. In every round each contender
// is opened anew and filled with all keys, so that the heap, and with it the garbage collector's
// work, is its own. A run for the record takes several minutes on two cores, and sets
// GOMAXPROCS.
func Memory(ctx context.Context, w *measure.Work) (*report.Text, error) {
	r := newMemoryRun(measure.Choose(w,
		measure.Plan{Rounds: 7, Slice: 400 * time.Millisecond, Keys: 1_000_000},
		measure.Plan{Rounds: 1, Slice: 40 * time.Millisecond, Keys: 20_000}),
		slices.Concat([]contender{inMemory}, inMemoryWindows, inMemorySeveral, memoryPeers, []contender{harness}))
	if err := r.measure(ctx, w); err != nil {
		return nil, err
	}
	return r.text(), nil
}

func newMemoryRun(plan measure.Plan, contenders []contender) *memoryRun {
	// Twice as many places as keys: most keys appear, and hardly any twice in a
	// row.
	length := sequenceLength(2 * plan.Keys)
	r := &memoryRun{
		Plan: plan, cores: []int{1}, contenders: contenders, rows: rows(contenders),
		sequences: []*workload.Sequence{
			hotAdmitted: workload.Hot(workload.Wide), hotDenied: workload.Hot(workload.Narrow),
			uniform: workload.Uniform(plan.Keys, length, 1), zipf: workload.Zipf(plan.Keys, length, 1),
		},
	}
	if runtime.NumCPU() > 1 {
		r.cores = append(r.cores, 2)
	}
	return r
}

// measure adds one sample to each cell in each round. The hot key is measured
// on a heap of its own.
func (r *memoryRun) measure(ctx context.Context, w *measure.Work) error {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for round := range r.Rounds {
		for i := range r.rows {
			i = (i + round) % len(r.rows)
			w.Say("round %d of %d: %s", round+1, r.Rounds, r.rows[i].Name)
			f, err := r.filled(ctx, i, manyLimits, r.Keys, uniform, zipf)
			if err == nil {
				// As many keys as it takes to have one of each class.
				_, err = r.filled(ctx, i, hotLimits, workload.NarrowEvery, hotAdmitted, hotDenied)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", r.rows[i].Name, err)
			}
			r.rows[i].Add(live, f)
		}
	}
	return nil
}

// filled measures workloads with a fresh limiter that has so many keys.
func (r *memoryRun) filled(ctx context.Context, i int, q workload.Limits, keys int, workloads ...int) (_ measure.Sample, err error) {
	l, f, err := fillMemory(ctx, r.contenders[i], q, keys)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	for _, at := range workloads {
		for _, n := range r.cores {
			if err := ctx.Err(); err != nil {
				return f, err
			}
			runtime.GOMAXPROCS(n)
			s, err := measure.Tight(n, r.Slice, l.batch(r.sequences[at], n))
			if err != nil {
				return f, fmt.Errorf("%d cores: %w", n, err)
			}
			r.rows[i].Add(cell(at, n), s)
		}
	}
	return f, nil
}

// fillMemory opens the contender and asks it once about each of the first keys.
func fillMemory(ctx context.Context, c contender, q workload.Limits, keys int) (_ *limiter, s measure.Sample, err error) {
	runtime.GC()
	runtime.GC() // the first one may have run finalizers, whose garbage is left
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l, err := c.open(ctx, "", q)
	if err != nil {
		return nil, s, err
	}
	for i := range keys {
		class, key := workload.ClassOf(i), workload.Key(i)
		if l.add != nil {
			err = l.add(class, key)
		}
		if err == nil {
			err = l.insist(class, key, c.role != measure.Floor || class == workload.Wide)
		}
		if err != nil {
			return nil, s, errors.Join(fmt.Errorf("filling: %w", err), l.close())
		}
	}
	runtime.GC()
	start := time.Now()
	runtime.GC()
	s.Done, s.Elapsed = keys, time.Since(start)
	runtime.ReadMemStats(&after)
	s.Bytes = float64(after.HeapAlloc) - float64(before.HeapAlloc)
	runtime.KeepAlive(l)
	return l, s, nil
}

// batch asks about one key after the other, each of n goroutines from a place of its own on.
func (l *limiter) batch(s *workload.Sequence, n int) func(w, done int) error {
	return func(w, done int) error { return l.ask(s, w*s.Len()/n+done, done) }
}

// ask asks about one key after the other, from place at on.
func (l *limiter) ask(s *workload.Sequence, at, done int) error {
	for range measure.Batch {
		class, key := s.At(at)
		allowed, err := l.take(class, key)
		if err != nil {
			return fmt.Errorf("a %s key after %d decisions: %w", class, done, err)
		}
		if allowed != (class == workload.Wide) {
			return fmt.Errorf("a %s key after %d decisions: allowed is %t", class, done, allowed)
		}
		at++
	}
	return nil
}

// most is the largest number of cores measured.
func (r *memoryRun) most() int { return r.cores[len(r.cores)-1] }

// fastest is the median time of the fastest peer in a cell.
func (r *memoryRun) fastest(cell int) float64 {
	return report.Least(r.rows, func(row measure.Row) float64 {
		if row.Role != measure.Other {
			return math.NaN()
		}
		return row.Median(cell, measure.Sample.Nanos)
	})
}

// table has a column for each workload. Its cells hold the figure for each number of cores.
func (r *memoryRun) table(figure func(row *measure.Row, cell int) string) *report.Table {
	var columns []measure.Column
	for at, name := range workloads {
		columns = append(columns, measure.Column{Name: name, Cell: func(row *measure.Row) string {
			var figures []string
			for _, n := range r.cores {
				if f := figure(row, cell(at, n)); f != "" {
					figures = append(figures, f)
				}
			}
			return strings.Join(figures, " / ")
		}})
	}
	return r.rows.Table(columns...)
}

// spread is the spread of the rounds in the cell at quantile q of all cells.
func (r *memoryRun) spread(q float64) float64 {
	var spreads []float64
	for _, row := range r.rows {
		for condition, samples := range row.Samples {
			var values []float64
			for _, s := range samples {
				values = append(values, s.Nanos())
			}
			if condition != live {
				spreads = append(spreads, report.Spread(values))
			}
		}
	}
	return report.Quantile(spreads, q)
}

func (r *memoryRun) text() *report.Text {
	t, keys := new(report.Text), report.Number(float64(r.Keys))
	on := "1 core"
	if len(r.cores) > 1 {
		on = fmt.Sprintf("1 core / %d cores", r.most())
	}
	t.Say("Nanoseconds for each decision, wall clock over decisions made on all cores, on %s; median of %d rounds of %v. "+
		"%s keys are live in the uniform and zipf columns.\n\n", on, r.Rounds, r.Slice, keys)
	t.Say("%s", r.table(func(row *measure.Row, cell int) string { return report.Number(row.Median(cell, measure.Sample.Nanos)) }))
	t.Say("\nThe rounds of one cell lie at most %s apart, in the middle cell %s.\n", report.Times(r.spread(1)), report.Times(r.spread(0.5)))
	var faster []string
	for at, name := range workloads {
		var times []string
		for _, n := range r.cores {
			times = append(times, report.Times(report.Ratio(r.fastest(cell(at, n)), r.rows.Named(inMemory.name).Median(cell(at, n), measure.Sample.Nanos))))
		}
		faster = append(faster, name+" "+strings.Join(times, " / "))
	}
	t.Say("\nHeadgate's throughput ÷ that of the fastest peer: %s.\n", strings.Join(faster, "; "))
	main := cell(uniform, r.most())
	t.Say("\nWhat it costs besides, with %s keys live:\n\n%s", keys, r.rows.Table(
		measure.Median("allocations a decision", main, measure.Sample.AllocsEach),
		measure.Column{Name: "bytes a key", Cell: func(row *measure.Row) string {
			if row.Role == measure.Floor {
				return ""
			}
			return report.Number(row.Median(live, measure.Sample.BytesEach))
		}},
		measure.Median("full garbage collection, ms", live, func(s measure.Sample) float64 { return 1000 * s.Elapsed.Seconds() })))
	t.Say("\nWhat a decision is here:\n")
	r.rows.Notes(t)
	ours, allocs := r.rows.Named(inMemory.name), 0.0
	for c := range ours.Samples {
		allocs = math.Max(allocs, ours.Median(c, measure.Sample.AllocsEach))
	}
	over := func(cell int) float64 { return report.Ratio(r.fastest(cell), ours.Median(cell, measure.Sample.Nanos)) }
	t.AtLeast(2.5, over(main), "uniform keys, %d cores: throughput ÷ fastest peer", r.most())
	for at, name := range workloads {
		for _, n := range r.cores {
			if c := cell(at, n); c != main {
				t.AtLeast(1, over(c), "%s, cores: %d: throughput ÷ fastest peer", name, n)
			}
		}
	}
	for i := range inMemoryWindows {
		row := r.rows.Named(inMemoryWindows[i].name)
		for _, n := range r.cores {
			hot, many := cell(hotAdmitted, n), cell(uniform, n)
			t.AtLeast(1, report.Ratio(r.fastest(hot), row.Median(hot, measure.Sample.Nanos)), "hot key, admitted, cores: %d: %s ÷ fastest peer", n, row.Name)
			t.AtLeast(2, report.Ratio(r.fastest(many), row.Median(many, measure.Sample.Nanos)), "uniform keys, cores: %d: %s ÷ fastest peer", n, row.Name)
		}
	}
	for i, most := range []float64{2.5, 2.2} {
		row := r.rows.Named(inMemorySeveral[i].name)
		for _, n := range r.cores {
			hot := cell(hotAdmitted, n)
			t.AtMost(most, report.Ratio(row.Median(hot, measure.Sample.Nanos), ours.Median(hot, measure.Sample.Nanos)), "hot key, admitted, cores: %d: %s ÷ one", n, row.Name)
		}
	}
	t.AtMost(48, ours.Median(live, measure.Sample.BytesEach), "bytes a key, all told")
	// The runtime itself allocates a little now and then. If each decision allocated, the
	// figure would be one or more.
	t.AtMost(0.01, allocs, "allocations a decision, worst column")
	return t
}
