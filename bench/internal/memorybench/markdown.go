package memorybench

import (
	"fmt"
	"math"
	"strings"

	"github.com/headgate/headgate/bench/internal/report"
)

// Nanos is the median time for each decision in a cell; NaN if it was not
// measured.
func (r *Result) Nanos(c Cell) float64 { return report.MedianOf(r.Samples[c], Sample.Nanos) }

// Allocs is the median number of allocations for each decision in a cell.
func (r *Result) Allocs(c Cell) float64 { return report.MedianOf(r.Samples[c], Sample.AllocsEach) }

// BytesPerKey is the median of the footprints.
func (r *Result) BytesPerKey() float64 {
	return report.MedianOf(r.Footprints, func(f Footprint) float64 { return f.BytesPerKey })
}

// CollectionMillis is the median time of a garbage collection in milliseconds.
func (r *Result) CollectionMillis() float64 {
	return report.MedianOf(r.Footprints, func(f Footprint) float64 { return float64(f.Collection.Microseconds()) / 1000 })
}

// fastest is the median time of the fastest peer in a cell.
func (o *Outcome) fastest(c Cell) float64 {
	var peers []*Result
	for i := range o.Results {
		if o.Results[i].Contender.Role == Peer {
			peers = append(peers, &o.Results[i])
		}
	}
	return report.Least(peers, func(r *Result) float64 { return r.Nanos(c) })
}

func (o *Outcome) cells() []Cell {
	var cells []Cell
	for _, w := range Workloads() {
		for _, n := range o.Cores {
			cells = append(cells, Cell{w, n})
		}
	}
	return cells
}

// Markdown returns the tables.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Nanoseconds for each decision, wall clock over decisions made on all cores, on %s; median of %d rounds of %v. "+
		"%s keys are live in the uniform and zipf columns.\n\n", o.coreList(), o.Plan.Rounds, o.Plan.Slice, report.Number(float64(o.Plan.Keys)))
	b.WriteString(o.table(func(r *Result, c Cell) string { return report.Number(r.Nanos(c)) }).String())
	fmt.Fprintf(&b, "\nDenied: %s. The rounds of one cell lie at most %s apart, in the middle cell %s.\n",
		o.shares(), report.Times(o.spread(1)), report.Times(o.spread(0.5)))

	b.WriteString("\nThroughput relative to the fastest peer of each column:\n\n")
	b.WriteString(o.table(func(r *Result, c Cell) string {
		if r.Contender.Role == Floor {
			return ""
		}
		return report.Times(report.Ratio(o.fastest(c), r.Nanos(c)))
	}).String())

	fmt.Fprintf(&b, "\nWhat it costs besides, with %s keys live:\n\n", report.Number(float64(o.Plan.Keys)))
	t := report.Table{Columns: []string{"", "allocations a decision", "bytes a key", "full garbage collection, ms"}}
	for i := range o.Results {
		r := &o.Results[i]
		bytes := ""
		if r.Contender.Role != Floor {
			bytes = report.Number(r.BytesPerKey())
		}
		t.Add(r.Contender.Name, report.Number(r.Allocs(Cell{uniform, o.most()})), bytes, report.Number(r.CollectionMillis()))
	}
	b.WriteString(t.String())

	b.WriteString("\nWhat a decision is here:\n\n")
	for i := range o.Results {
		fmt.Fprintf(&b, "- **%s**: %s.\n", o.Results[i].Contender.Name, o.Results[i].Contender.Note)
	}
	if bars := o.Bars(); bars != nil {
		b.WriteString("\n" + report.Bars(bars))
	}
	return b.String()
}

// coreList says what the figures of one cell are for, such as "1 core / 2 cores".
func (o *Outcome) coreList() string {
	if len(o.Cores) == 1 {
		return "1 core"
	}
	return fmt.Sprintf("1 core / %d cores", o.most())
}

// most is the largest number of cores measured.
func (o *Outcome) most() int { return o.Cores[len(o.Cores)-1] }

// table has a column for each workload; its cells hold the figure for each number
// of cores.
func (o *Outcome) table(figure func(*Result, Cell) string) *report.Table {
	t := &report.Table{Columns: append([]string{""}, Workloads()...)}
	for i := range o.Results {
		r := &o.Results[i]
		row := []string{r.Contender.Name}
		for _, w := range Workloads() {
			var figures []string
			for _, n := range o.Cores {
				if f := figure(r, Cell{w, n}); f != "" {
					figures = append(figures, f)
				}
			}
			row = append(row, strings.Join(figures, " / "))
		}
		t.Add(row...)
	}
	return t
}

func (o *Outcome) shares() string {
	var parts []string
	for _, w := range Workloads() {
		parts = append(parts, fmt.Sprintf("%s %s", w, report.Percent(o.Denied[w])))
	}
	return strings.Join(parts, ", ")
}

// spread is the spread of the rounds in the cell at quantile q of all cells.
func (o *Outcome) spread(q float64) float64 {
	var spreads []float64
	for i := range o.Results {
		for _, samples := range o.Results[i].Samples {
			values := make([]float64, len(samples))
			for j, s := range samples {
				values[j] = s.Nanos()
			}
			spreads = append(spreads, report.Spread(values))
		}
	}
	return report.Quantile(spreads, q)
}

// Bars holds Headgate's figures against the bounds that the project has set
// itself; nil if Headgate was not measured.
func (o *Outcome) Bars() []report.Bar {
	for i := range o.Results {
		r := &o.Results[i]
		if r.Contender.Role != Ours {
			continue
		}
		main := Cell{uniform, o.most()}
		worst := 0.0
		for _, c := range o.cells() {
			worst = math.Max(worst, r.Allocs(c))
		}
		return []report.Bar{
			{What: fmt.Sprintf("uniform keys, %d cores: throughput ÷ fastest peer", main.Cores), Bound: 2.5, Got: report.Ratio(o.fastest(main), r.Nanos(main))},
			{What: "bytes a key, all told", Bound: 64, AtMost: true, Got: r.BytesPerKey()},
			// The runtime itself allocates a little now and then; a decision
			// that did would show as one or more.
			{What: "allocations a decision, worst column", Bound: 0.01, AtMost: true, Got: worst},
		}
	}
	return nil
}
