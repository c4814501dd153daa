package redisbench

import (
	"fmt"
	"math"
	"strings"

	"github.com/headgate/headgate/bench/internal/report"
)

// columns are the figures of a sample, in the order of the tables.
var columns = []struct {
	name   string
	figure func(Sample) float64
}{
	{"decisions/s", Sample.PerSecond},
	{"p50 µs", func(s Sample) float64 { return s.Quantile(50) }},
	{"p99 µs", func(s Sample) float64 { return s.Quantile(99) }},
	{"p99.9 µs", func(s Sample) float64 { return s.Quantile(99.9) }},
	{"server CPU µs", Sample.ServerCPU},
	{"client CPU µs", Sample.ClientCPU},
	{"in scripts µs", Sample.ScriptTime},
	{"script calls", Sample.Calls},
}

func medians(samples []Sample) []string {
	var cells []string
	for _, c := range columns {
		cells = append(cells, report.Number(report.MedianOf(samples, c.figure)))
	}
	return cells
}

func header(first ...string) *report.Table {
	t := &report.Table{Columns: first}
	for _, c := range columns {
		t.Columns = append(t.Columns, c.name)
	}
	return t
}

// Markdown returns the tables.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; median of %d rounds of %v. Times are microseconds for each decision; "+
		"\"server CPU\" is its main thread, \"in scripts\" what it reports of EVAL and EVALSHA.\n", o.Version, o.Plan.Rounds, o.Plan.Slice)
	o.strict(&b)
	o.several(&b)
	o.windows(&b)
	o.footprint(&b)
	b.WriteString("\n**What a decision is here**\n\n")
	for i := range o.Strict {
		fmt.Fprintf(&b, "- **%s**: %s.\n", o.Strict[i].Contender.Name, o.Strict[i].Contender.Note)
	}
	for _, w := range o.Windows {
		fmt.Fprintf(&b, "- **%s** (sliding window): %s.\n", w.Contender.Name, w.Contender.Note)
	}
	if bars := o.Bars(); len(bars) > 0 {
		b.WriteString("\n" + report.Bars(bars))
	}
	return b.String()
}

func (o *Outcome) strict(b *strings.Builder) {
	fmt.Fprintf(b, "\n**One limit**, %s keys, %s of the decisions denied:\n", report.Number(float64(o.Plan.Keys)), report.Percent(o.Denied))
	for _, callers := range o.Plan.Callers {
		fmt.Fprintf(b, "\n%d at a time:\n\n", callers)
		t := header("", "÷ bare")
		for i := range o.Strict {
			s := &o.Strict[i]
			t.Add(append([]string{s.Contender.Name, report.Times(o.toFloor(s, callers))}, medians(s.Samples[callers])...)...)
		}
		b.WriteString(t.String())
	}
}

// throughput is a series' median of decisions per second.
func (s *Series) throughput(callers int) float64 {
	return report.MedianOf(s.Samples[callers], Sample.PerSecond)
}

// toFloor is a series' throughput over that of the bare EVALSHA; NaN if that was
// not measured.
func (o *Outcome) toFloor(s *Series, callers int) float64 {
	for i := range o.Strict {
		if o.Strict[i].Contender.Role == Floor {
			return report.Ratio(s.throughput(callers), o.Strict[i].throughput(callers))
		}
	}
	return math.NaN()
}

func (o *Outcome) several(b *strings.Builder) {
	if len(o.Several) == 0 {
		return
	}
	fmt.Fprintf(b, "\n**Several limits in one check**, %d at a time, all admitted:\n\n", many)
	t := header("")
	for i := range o.Several {
		s := &o.Several[i]
		t.Add(append([]string{s.Contender.Name}, medians(s.Samples[many])...)...)
	}
	b.WriteString(t.String())
}

func (o *Outcome) windows(b *strings.Builder) {
	if len(o.Windows) == 0 {
		return
	}
	var windows []string
	for _, w := range o.Plan.Windows {
		windows = append(windows, w.String())
	}
	fmt.Fprintf(b, "\n**Exact sliding windows**, %s together, %s keys with full logs, %d at a time:\n\n",
		strings.Join(windows, " and "), report.Number(float64(o.Plan.WindowKeys)), many)
	t := header("", "answer")
	for _, w := range o.Windows {
		t.Add(append([]string{w.Contender.Name, "admitted"}, medians(w.Admitted)...)...)
		t.Add(append([]string{w.Contender.Name, "denied"}, medians(w.Denied)...)...)
	}
	b.WriteString(t.String())
	b.WriteString("\nMemory of one such key:\n\n")
	m := report.Table{Columns: []string{"", "bytes (MEMORY USAGE)"}}
	for _, w := range o.Windows {
		m.Add(w.Contender.Name, report.Number(w.BytesPerKey))
	}
	b.WriteString(m.String())
}

func (o *Outcome) footprint(b *strings.Builder) {
	fmt.Fprintf(b, "\n**Memory of a key with one limit**, %s keys of %d bytes, one unit taken of each:\n\n",
		report.Number(float64(o.Plan.WeighedKeys)), keyLen)
	t := report.Table{Columns: []string{"", "bytes a key, all told", "of which MEMORY USAGE"}}
	for _, f := range o.Footprint {
		t.Add(f.Contender.Name, report.Number(f.Total), report.Number(f.Each))
	}
	b.WriteString(t.String())
}
