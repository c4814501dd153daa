package policybench

import (
	"fmt"
	"math"
	"strings"

	"github.com/headgate/headgate/bench/internal/report"
)

// Nanos is the median time of a match in a cell.
func (o *Outcome) Nanos(c Cell) float64 { return report.MedianOf(o.Samples[c], Sample.Nanos) }

// Markdown returns the tables.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Nanoseconds to find the rule that binds a request with four entries; median of %d rounds of %v.\n\n", o.Plan.Rounds, o.Plan.Slice)
	columns := []string{""}
	for _, n := range Sizes() {
		columns = append(columns, fmt.Sprintf("%d rules", n))
	}
	t := report.Table{Columns: columns}
	for _, k := range Kinds() {
		row := []string{k.Name}
		for _, n := range Sizes() {
			row = append(row, report.Number(o.Nanos(Cell{k.Name, n})))
		}
		t.Add(row...)
	}
	b.WriteString(t.String() + "\n")
	for _, k := range Kinds() {
		fmt.Fprintf(&b, "- **%s**: %s.\n", k.Name, k.Note)
	}
	b.WriteString("\n" + report.Bars(o.Bars()))
	return b.String()
}

// Bars holds the figures against the bounds that the project has set itself.
func (o *Outcome) Bars() []report.Bar {
	sizes := Sizes()
	few, many := sizes[0], sizes[len(sizes)-1]
	bars := make([]report.Bar, 0, len(Kinds())+1)
	allocs := 0.0
	for _, k := range Kinds() {
		ratio := report.Ratio(o.Nanos(Cell{k.Name, many}), o.Nanos(Cell{k.Name, few}))
		bars = append(bars, report.Bar{What: fmt.Sprintf("%s: %d rules ÷ %d rules", k.Name, many, few), Bound: 3, AtMost: true, Got: ratio})
		for _, n := range sizes {
			allocs = math.Max(allocs, report.MedianOf(o.Samples[Cell{k.Name, n}], Sample.AllocsEach))
		}
	}
	// The runtime itself allocates a little now and then; a match that did would
	// show as one or more.
	return append(bars, report.Bar{What: "allocations a match, worst cell", Bound: 0.01, AtMost: true, Got: allocs})
}
