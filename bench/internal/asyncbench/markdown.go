package asyncbench

import (
	"fmt"
	"math"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/closedloop"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/store/layered/async"
)

// Markdown returns the tables.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %d callers, closed loop; median of %d rounds of %v. The hot key is one that is always admitted, cold keys are keys that nobody has seen.\n\n",
		o.Version, o.Plan.Callers, o.Plan.Rounds, o.Plan.Slice)
	t := report.Table{Columns: []string{"", "decisions/s", "÷ strict", "client CPU a decision, µs", "÷ strict", "Redis calls a decision"}}
	for _, row := range []struct {
		what    string
		samples *[ways][]closedloop.Sample
	}{{"hot key", &o.Hot}, {"cold keys", &o.Cold}} {
		for way := range ways {
			t.Add(row.what+", "+wayNames[way],
				report.Number(report.MedianOf(row.samples[way], closedloop.Sample.PerSecond)), report.Times(closedloop.Relative(row.samples[way], row.samples[strict], closedloop.Sample.PerSecond)),
				report.Number(report.MedianOf(row.samples[way], closedloop.Sample.Each)), report.Times(closedloop.Relative(row.samples[way], row.samples[strict], closedloop.Sample.Each)),
				fmt.Sprintf("%.4f", report.MedianOf(row.samples[way], closedloop.Sample.Asked)))
		}
	}
	b.WriteString(t.String())
	fmt.Fprintf(&b, "\nNodes that share one key, and are asked together for %d times what its limit admits, for %v; a report every %v, a part of 1/%.0f. \"Too many\" is the most by which the limit was ever exceeded: "+
		"of a window's count, or of what the bucket admits in that time. \"Of strict\" is how much was admitted of what a strict limiter admits of the same requests. "+
		"\"Held\" is the most that one node had not reported: what is forgotten if it dies then.\n\n", overload, o.Plan.Length, async.DefaultInterval, 1/async.DefaultPart)
	t = report.Table{Columns: []string{"limit", "load", "nodes", "too many, units", "too many", "of strict", "held, units", "Redis calls a decision"}}
	for i := range o.Exact {
		e := &o.Exact[i]
		t.Add(fmt.Sprintf("%s, %s", e.Limit.Algorithm, &e.Limit), e.Load, fmt.Sprint(e.Nodes), report.Number(max(0, e.Excess)), fmt.Sprintf("%.2f %%", 100*e.Over()),
			report.Percent(e.OfStrict()), report.Number(float64(e.Held)), fmt.Sprintf("%.3f", float64(e.Calls)/float64(e.Requests)))
	}
	b.WriteString(t.String())
	b.WriteString("\n" + report.Bars(o.Bars()))
	return b.String()
}

// Bars holds the figures against the bounds that the project has set itself.
func (o *Outcome) Bars() []report.Bar {
	bars := []report.Bar{
		{What: "hot key: throughput ÷ strict", Bound: 10, Got: closedloop.Relative(o.Hot[asynchronous], o.Hot[strict], closedloop.Sample.PerSecond)},
		{What: "cold keys: client CPU ÷ strict", Bound: 1.05, AtMost: true, Got: closedloop.Relative(o.Cold[asynchronous], o.Cold[strict], closedloop.Sample.Each)},
		{What: "cold keys: time of a decision ÷ strict", Bound: 1.05, AtMost: true, Got: 1 / closedloop.Relative(o.Cold[asynchronous], o.Cold[strict], closedloop.Sample.PerSecond)},
	}
	for _, a := range []headgate.Algorithm{headgate.TokenBucket, headgate.SlidingWindow} {
		worst := math.NaN()
		for i := range o.Exact {
			if e := &o.Exact[i]; e.Load == "steady" && e.Limit.Algorithm == a && !(worst >= e.Over()) {
				worst = max(0, e.Over())
			}
		}
		bars = append(bars, report.Bar{What: fmt.Sprintf("steady load, %s, up to %d nodes: too many", a, o.Plan.Nodes[len(o.Plan.Nodes)-1]), Bound: 0.01, AtMost: true, Got: worst})
	}
	return bars
}
