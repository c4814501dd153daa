package leasebench

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/bench/internal/report"
)

// Markdown returns the tables.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. One token bucket, %d callers in one process, closed loop; median of %d rounds of %v.\n\n",
		o.Version, o.Plan.Callers, o.Plan.Rounds, o.Plan.Slice)
	t := report.Table{Columns: []string{"", "decisions/s", "÷ strict", "calls a decision", "over-admitted"}}
	for _, c := range []struct {
		name  string
		pairs []Pair
	}{
		{"one hot key", o.Hot},
		{fmt.Sprintf("%s keys, none hot", report.Number(float64(o.Plan.Keys))), o.Cold},
	} {
		t.Add(c.name+", strict", report.Number(median(c.pairs, strict, Sample.PerSecond)), report.Times(1), report.Number(median(c.pairs, strict, calls)), "0")
		over := "0"
		if n := worst(c.pairs); n > 0 {
			over = fmt.Sprint(n)
		}
		t.Add(c.name+", leased", report.Number(median(c.pairs, ofLeased, Sample.PerSecond)), report.Times(gain(c.pairs)), report.Number(median(c.pairs, ofLeased, calls)), over)
	}
	b.WriteString(t.String())
	fmt.Fprintf(&b, "\n**A limit that is in the way**: %s units a second, bursts of %s; %d nodes of %d callers with connections of their own, one of which is dropped in the middle of each run with what it holds.\n\n",
		report.Number(float64(tight.rate)), report.Number(float64(tight.burst)), o.Plan.Nodes, max(1, o.Plan.Callers/o.Plan.Nodes))
	t = report.Table{Columns: []string{"run", "asked", "admitted", "burst + rate × time", "admitted ÷ that", "over-admitted"}}
	for i, c := range o.Tight {
		t.Add(fmt.Sprint(i+1), report.Number(float64(c.Asked)), report.Number(float64(c.Admitted)), report.Number(float64(c.Allowed)),
			report.Percent(float64(c.Admitted)/float64(c.Allowed)), fmt.Sprint(c.Over))
	}
	b.WriteString(t.String())
	b.WriteString("\n" + report.Bars(o.Bars()))
	return b.String()
}

func strict(p Pair) Sample   { return p.Strict }
func ofLeased(p Pair) Sample { return p.Leased }

func calls(s Sample) float64 { return float64(s.Calls) / float64(s.Decisions) }

func median(pairs []Pair, way func(Pair) Sample, figure func(Sample) float64) float64 {
	return report.MedianOf(pairs, func(p Pair) float64 { return figure(way(p)) })
}

// gain is the throughput over that of the strict way: the median of the rounds'.
func gain(pairs []Pair) float64 {
	return report.MedianOf(pairs, func(p Pair) float64 { return report.Ratio(p.Leased.PerSecond(), p.Strict.PerSecond()) })
}

// worst is how many were admitted too much in the worst round.
func worst(pairs []Pair) int64 {
	most := int64(0)
	for _, p := range pairs {
		most = max(most, p.Leased.Over)
	}
	return most
}

// Bars holds the figures against the bounds that the project has set itself.
func (o *Outcome) Bars() []report.Bar {
	over := worst(o.Hot)
	for _, c := range o.Tight {
		over = max(over, c.Over)
	}
	return []report.Bar{
		{What: fmt.Sprintf("leased hot key, %d callers: throughput ÷ strict", o.Plan.Callers), Bound: 10, Got: gain(o.Hot)},
		{What: "leased: units over-admitted in the worst of all runs", Bound: 0, AtMost: true, Got: float64(over)},
		{What: "cold keys: time of a decision ÷ strict", Bound: 1.05, AtMost: true, Got: 1 / gain(o.Cold)},
	}
}
