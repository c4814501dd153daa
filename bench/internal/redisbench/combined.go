package redisbench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/redis"
)

// CombinedFull is the plan of a run for the record on combined calls: about three
// minutes. There are more rounds than elsewhere, since bars of 5 % are held.
func CombinedFull() Plan {
	return Plan{Rounds: 9, Slice: 700 * time.Millisecond, Callers: []int{1, 4, 16, 32, 64, 256}, Keys: 100_000}
}

// CombinedShort is the plan of a run that shows whether everything works.
func CombinedShort() Plan {
	return Plan{Rounds: 1, Slice: 150 * time.Millisecond, Callers: []int{1, 16, 64, 256}, Keys: 10_000}
}

// The names of the contenders that the bars are about.
const (
	combinedName = "Headgate, combined"
	eachName     = "Headgate, one call each"
)

// CombinedOutcome is what a run on combined calls has measured.
type CombinedOutcome struct {
	Plan    Plan
	Version string
	// Buckets has one token bucket a request, Others the other rules that share
	// calls, combined and not.
	Buckets, Others []Series
}

// RunCombined measures decisions that share script calls against a call for each, and
// both against the bare EVALSHA.
func RunCombined(ctx context.Context, s *Server, plan Plan) (*CombinedOutcome, error) {
	o := &CombinedOutcome{Plan: plan, Version: s.Version}
	length := 1
	for length < 4*plan.Keys {
		length *= 2
	}
	keys := workload.Uniform(plan.Keys, length, 1)
	from := redis.DefaultCombineFrom
	buckets := []Contender{
		headgateBucket(combinedName, fmt.Sprintf("decisions share script calls from %d in flight on", from), from),
		headgateBucket(eachName, "the same store, each decision by its own EVALSHA", 0),
		TokenBucketFloor(),
	}
	var err error
	if o.Buckets, err = s.compare(ctx, plan, buckets, plan.Callers, keys, byClass); err != nil {
		return nil, fmt.Errorf("one bucket: %w", err)
	}
	var others []Contender
	for _, each := range []struct {
		name      string
		algorithm headgate.Algorithm
		limits    int
	}{
		{"three token buckets", headgate.TokenBucket, 3},
		{"one sliding window", headgate.SlidingWindow, 1},
		{"three sliding windows", headgate.SlidingWindow, 3},
	} {
		others = append(others,
			headgateLimits(each.name+", combined", each.algorithm, each.limits, from),
			headgateLimits(each.name+", one call each", each.algorithm, each.limits, 0))
	}
	plan.Rounds = (plan.Rounds + 2) / 3
	if o.Others, err = s.compare(ctx, plan, others, []int{64, 256}, keys, always); err != nil {
		return nil, fmt.Errorf("other rules: %w", err)
	}
	return o, nil
}

// Bars are the bounds that combined calls are held to.
func (o *CombinedOutcome) Bars() []report.Bar {
	series := map[string]*Series{}
	for i := range o.Buckets {
		series[o.Buckets[i].Contender.Name] = &o.Buckets[i]
	}
	combined := series[combinedName]
	var bars []report.Bar
	for _, base := range []*Series{series[TokenBucketFloor().Name], series[eachName]} {
		ratio := func(callers int, figure func(Sample) float64) float64 {
			return paired(combined.Samples[callers], base.Samples[callers], figure)
		}
		name := base.Contender.Name
		for _, callers := range o.Plan.Callers {
			if base.Contender.Name == eachName && callers <= 16 {
				bars = append(bars, report.Bar{
					What: fmt.Sprintf("%d callers: throughput ÷ %s", callers, name), Bound: 0.95, Got: ratio(callers, Sample.PerSecond),
				})
			}
		}
		bars = append(
			bars,
			report.Bar{What: "64 callers: throughput ÷ " + name, Bound: 1.4, Got: ratio(64, Sample.PerSecond)},
			report.Bar{What: "256 callers: throughput ÷ " + name, Bound: 2, Got: ratio(256, Sample.PerSecond)},
			report.Bar{What: "64 callers: p99 ÷ " + name, Bound: 1, AtMost: true, Got: ratio(64, p99)},
			report.Bar{What: "256 callers: p99 ÷ " + name, Bound: 1, AtMost: true, Got: ratio(256, p99)},
			report.Bar{What: "256 callers: server CPU of a decision ÷ " + name, Bound: 0.6, AtMost: true, Got: ratio(256, Sample.ServerCPU)},
		)
	}
	return bars
}

func p99(s Sample) float64 { return s.Quantile(99) }

// paired is the median of the ratios of samples of the same round, which were
// measured right after one another: what else the machine does changes more slowly.
func paired(a, b []Sample, figure func(Sample) float64) float64 {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = report.Ratio(figure(a[i]), figure(b[i]))
	}
	return report.Median(ratios)
}

// Markdown returns the tables.
func (o *CombinedOutcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; median of %d rounds of %v, %s keys. Times are microseconds for each decision; "+
		"\"server CPU\" is its main thread, \"in scripts\" what it reports of EVAL and EVALSHA. The bars are medians of the ratios within a round.\n",
		o.Version, o.Plan.Rounds, o.Plan.Slice, report.Number(float64(o.Plan.Keys)))
	for _, callers := range o.Plan.Callers {
		fmt.Fprintf(&b, "\n**One token bucket**, %d at a time:\n\n", callers)
		writeSeries(&b, o.Buckets, callers)
	}
	for _, callers := range []int{64, 256} {
		fmt.Fprintf(&b, "\n**Other rules**, %d at a time, all admitted:\n\n", callers)
		writeSeries(&b, o.Others, callers)
	}
	b.WriteString("\n" + report.Bars(o.Bars()))
	return b.String()
}

func writeSeries(b *strings.Builder, series []Series, callers int) {
	t := header("")
	for i := range series {
		t.Add(append([]string{series[i].Contender.Name}, medians(series[i].Samples[callers])...)...)
	}
	b.WriteString(t.String())
}
