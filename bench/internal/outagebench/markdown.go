package outagebench

import (
	"fmt"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/store/redis"
)

// Markdown returns the tables.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. **While the store is well**: one token bucket, %d callers, %s keys, closed loop; median of %d rounds of %v.\n\n",
		o.Version, o.Plan.Callers, report.Number(float64(o.Plan.Keys)), o.Plan.Rounds, o.Plan.Slice)
	t := report.Table{Columns: []string{"", "decisions/s", "÷ the store alone", "client CPU a decision, µs", "÷ the store alone"}}
	for i := range o.Well {
		w := &o.Well[i]
		t.Add(w.Name, report.Number(report.MedianOf(w.Samples, Sample.PerSecond)), report.Times(o.relative(i, Sample.PerSecond)),
			report.Number(report.MedianOf(w.Samples, Sample.Each)), report.Times(o.relative(i, Sample.Each)))
	}
	b.WriteString(t.String())
	fmt.Fprintf(&b, "\n**While the store hangs** (SIGSTOP): %s requests a second by %d callers, open loop, a deadline of %v. Time of a decision in milliseconds; \"of the machine\" is the same for as many requests of the memory store, by the same process at the same time.\n\n",
		report.Number(float64(o.Plan.Rate)), o.Plan.Callers, redis.DefaultTimeout)
	t = report.Table{Columns: []string{"", "hangs for", "first 100 ms: p99", "of the machine", "all: p50", "p99", "of the machine", "longest", "without a decision"}}
	for i := range o.Hangs {
		h := &o.Hangs[i]
		t.Add(h.Name, h.For.String(), ms(h.Begin, 99), ms(h.BeginMachine, 99), ms(h.All, 50), ms(h.All, 99), ms(h.Machine, 99), ms(h.All, 100),
			report.Percent(float64(h.Undecided)/float64(h.All.TotalCount())))
	}
	b.WriteString(t.String())
	fmt.Fprintf(&b, "\nWhat the process holds after a third of that time, and at the end of it:\n\n")
	t = report.Table{Columns: []string{"", "heap, KiB", "at the end", "goroutines", "at the end"}}
	for i := range o.Hangs {
		h := &o.Hangs[i]
		t.Add(h.Name, report.Number(float64(h.Before.Heap)/1024), report.Number(float64(h.After.Heap)/1024),
			report.Number(float64(h.Before.Goroutines)), report.Number(float64(h.After.Goroutines)))
	}
	b.WriteString(t.String())
	b.WriteString("\n" + report.Bars(o.Bars()))
	return b.String()
}

// ms writes a quantile in milliseconds.
func ms(h *hdrhistogram.Histogram, q float64) string { return report.Number(quantile(h, q)) }

func quantile(h *hdrhistogram.Histogram, q float64) float64 {
	return float64(h.ValueAtPercentile(q)) / float64(time.Millisecond)
}

// relative is a figure of a way over that of the store alone: the median of what it
// was in each round.
func (o *Outcome) relative(i int, figure func(Sample) float64) float64 {
	ratios := make([]float64, len(o.Well[i].Samples))
	for n := range ratios {
		ratios[n] = report.Ratio(figure(o.Well[i].Samples[n]), figure(o.Well[0].Samples[n]))
	}
	return report.Median(ratios)
}

// Bars holds the figures against the bounds that the project has set itself.
func (o *Outcome) Bars() []report.Bar {
	var bars []report.Bar
	for i := range o.Well {
		if !ways[i].bare {
			bars = append(bars, report.Bar{What: o.Well[i].Name + ", well: throughput ÷ the store alone", Bound: 0.95, Got: o.relative(i, Sample.PerSecond)})
		}
	}
	most := float64(redis.DefaultTimeout+2*time.Millisecond) / float64(time.Millisecond)
	for i := range o.Hangs {
		h := &o.Hangs[i]
		if ways[i].bare {
			continue
		}
		bars = append(bars,
			report.Bar{What: h.Name + ", hangs: p99 of a decision in the first 100 ms, less the machine's, ms", Bound: most, AtMost: true, Got: quantile(h.Begin, 99) - quantile(h.BeginMachine, 99)},
			report.Bar{What: h.Name + ", hangs: p99 of a decision, less the machine's, ms", Bound: most, AtMost: true, Got: quantile(h.All, 99) - quantile(h.Machine, 99)},
			report.Bar{What: h.Name + ", hangs: heap at the end ÷ heap after a third of the time", Bound: 1.1, AtMost: true, Got: float64(h.After.Heap) / float64(h.Before.Heap)},
			report.Bar{What: h.Name + ", hangs: goroutines at the end ÷ after a third of the time", Bound: 1.1, AtMost: true, Got: float64(h.After.Goroutines) / float64(h.Before.Goroutines)},
		)
	}
	return bars
}
