package denycachebench

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/bench/internal/closedloop"
	"github.com/headgate/headgate/bench/internal/report"
)

// Markdown returns the tables.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %d callers, closed loop; median of %d rounds of %v. \"One denied key\" is a flood of requests for a key whose limit is used up, \"cold keys\" are keys that nobody has seen, while the cache remembers %s others.\n\n",
		o.Version, o.Plan.Callers, o.Plan.Rounds, o.Plan.Slice, report.Number(float64(o.Plan.Denied)))
	t := report.Table{Columns: []string{"", "decisions/s", "÷ one call each", "client CPU a decision, µs", "÷ one call each", "Redis calls a decision"}}
	for _, row := range []struct {
		what    string
		samples *[ways][]closedloop.Sample
	}{{"one denied key", &o.Flood}, {"cold keys", &o.Cold}} {
		for way := range ways {
			t.Add(row.what+", "+wayNames[way],
				report.Number(report.MedianOf(row.samples[way], closedloop.Sample.PerSecond)), report.Times(closedloop.Relative(row.samples[way], row.samples[single], closedloop.Sample.PerSecond)),
				report.Number(report.MedianOf(row.samples[way], closedloop.Sample.Each)), report.Times(closedloop.Relative(row.samples[way], row.samples[single], closedloop.Sample.Each)),
				fmt.Sprintf("%.4f", report.MedianOf(row.samples[way], closedloop.Sample.Asked)))
		}
	}
	b.WriteString(t.String())
	b.WriteString("\n" + report.Bars(o.Bars()))
	return b.String()
}

// Bars holds the figures against the bounds that the project has set itself.
func (o *Outcome) Bars() []report.Bar {
	return []report.Bar{
		{What: "one denied key, deny cache: throughput ÷ one call each", Bound: 20, Got: closedloop.Relative(o.Flood[cached], o.Flood[single], closedloop.Sample.PerSecond)},
		{What: "one denied key, deny cache: Redis calls a decision", Bound: 0.01, AtMost: true, Got: report.MedianOf(o.Flood[cached], closedloop.Sample.Asked)},
		{What: "cold keys, deny cache: client CPU ÷ without", Bound: 1.05, AtMost: true, Got: closedloop.Relative(o.Cold[cached], o.Cold[shared], closedloop.Sample.Each)},
		{What: "cold keys, deny cache: time of a decision ÷ without", Bound: 1.05, AtMost: true, Got: 1 / closedloop.Relative(o.Cold[cached], o.Cold[shared], closedloop.Sample.PerSecond)},
	}
}
