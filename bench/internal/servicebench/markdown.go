package servicebench

import (
	"fmt"
	"math"
	"strings"

	"github.com/headgate/headgate/bench/internal/report"
)

func (r *Result) cpu() float64 { return report.MedianOf(r.Samples, Sample.CPUEach) }

// floor is the CPU time for each request of the server that Headgate's is held
// against.
func (o *Outcome) floor() float64 {
	for i := range o.Results {
		if o.Results[i].Contender.Role == Floor {
			return o.Results[i].cpu()
		}
	}
	return math.NaN()
}

// Markdown returns the table.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Closed loop over %d keep-alive connections, saturated; %s keys, every request admitted; median of %d rounds of %v.\n\n",
		o.Plan.Connections, report.Number(float64(o.Plan.Keys)), o.Plan.Rounds, o.Plan.Slice)
	t := report.Table{Columns: []string{"", "server CPU a request, µs", "÷ JSON echo", "requests/s, load generator on the same cores"}}
	for i := range o.Results {
		r := &o.Results[i]
		t.Add(r.Contender.Name, report.Number(r.cpu()), report.Times(report.Ratio(r.cpu(), o.floor())),
			report.Number(report.MedianOf(r.Samples, Sample.PerSecond)))
	}
	b.WriteString(t.String())
	b.WriteByte('\n')
	for i := range o.Results {
		fmt.Fprintf(&b, "- **%s**: %s.\n", o.Results[i].Contender.Name, o.Results[i].Contender.Note)
	}
	if bars := o.Bars(); len(bars) > 0 {
		b.WriteString("\n" + report.Bars(bars))
	}
	return b.String()
}

// Bars holds Headgate's figures against the bounds that the project has set
// itself; empty if Headgate was not measured.
func (o *Outcome) Bars() []report.Bar {
	var bars []report.Bar
	for i := range o.Results {
		if r := &o.Results[i]; r.Contender.Role == Ours {
			bars = append(bars, report.Bar{
				What: r.Contender.Name + ": server CPU a request ÷ JSON echo", Bound: 1.6, AtMost: true,
				Got: report.Ratio(r.cpu(), o.floor()),
			})
		}
	}
	return bars
}
