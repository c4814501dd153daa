package redisbench

import (
	"fmt"

	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
)

const keyLen = workload.KeyLen

// Bars holds Headgate's figures against the bounds that the project has set
// itself; empty if Headgate was not measured.
func (o *Outcome) Bars() []report.Bar {
	var bars []report.Bar
	for i := range o.Strict {
		if s := &o.Strict[i]; s.Contender.Role == Ours {
			for _, callers := range o.Plan.Callers {
				bars = append(bars, report.Bar{
					What:  fmt.Sprintf("%s, one limit, %d at a time: throughput ÷ bare EVALSHA", s.Contender.Name, callers),
					Bound: 0.9, Got: o.toFloor(s, callers),
				})
			}
		}
	}
	// Pairs of one limit and several.
	for i := 0; i+1 < len(o.Several); i += 2 {
		one, five := &o.Several[i], &o.Several[i+1]
		for _, c := range []struct {
			name   string
			figure func(Sample) float64
		}{{"server CPU", Sample.ServerCPU}, {"time in scripts", Sample.ScriptTime}} {
			bars = append(bars, report.Bar{
				What:  fmt.Sprintf("%s: %s ÷ %s", five.Contender.Name, c.name, one.Contender.Name),
				Bound: 1.5, AtMost: true,
				Got: report.Ratio(report.MedianOf(five.Samples[many], c.figure), report.MedianOf(one.Samples[many], c.figure)),
			})
		}
	}
	return append(bars, o.windowBars()...)
}

func (o *Outcome) windowBars() []report.Bar {
	var ours, zset *WindowResult
	for i := range o.Windows {
		switch o.Windows[i].Contender.Role {
		case Ours:
			ours = &o.Windows[i]
		case Peer:
			zset = &o.Windows[i]
		}
	}
	if ours == nil || zset == nil {
		return nil
	}
	ratio := func(a, b []Sample) float64 {
		return report.Ratio(report.MedianOf(a, Sample.ScriptTime), report.MedianOf(b, Sample.ScriptTime))
	}
	return []report.Bar{
		{What: "sliding windows, admitted: time in scripts ÷ ZSET script", Bound: 0.5, AtMost: true, Got: ratio(ours.Admitted, zset.Admitted)},
		{What: "sliding windows, denied: time in scripts ÷ ZSET script", Bound: 0.5, AtMost: true, Got: ratio(ours.Denied, zset.Denied)},
		{What: "sliding windows: memory of a key, ZSET script ÷ Headgate", Bound: 6, Got: report.Ratio(zset.BytesPerKey, ours.BytesPerKey)},
	}
}
