package grpcbench

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servicebench"
)

// Outcome is what a run has measured.
type Outcome struct {
	*servicebench.Outcome
	contenders []contender
}

// InFlight is how many messages are on their way at the same time.
const InFlight = 256

// Run measures Headgate's server, built from the module at source into dir, and
// the echoes of program.
func Run(ctx context.Context, plan servicebench.Plan, program, source, dir string) (*Outcome, error) {
	contenders, err := field(ctx, program, source, dir)
	if err != nil {
		return nil, err
	}
	o := &Outcome{contenders: contenders}
	all := make([]servicebench.Contender, len(contenders))
	for i := range contenders {
		all[i] = contenders[i].Contender
		all[i].Load = func(ctx context.Context, addr string, d time.Duration) (int, error) {
			return contenders[i].question.load(ctx, addr, InFlight, plan.Keys, d)
		}
	}
	o.Outcome, err = servicebench.Run(ctx, plan, all)
	return o, err
}

func (o *Outcome) cpu(i int) float64 {
	return report.MedianOf(o.Results[i].Samples, servicebench.Sample.CPUEach)
}

// floor is the CPU time of the echo that the group is held against.
func (o *Outcome) floor(g group) float64 {
	for i := range o.contenders {
		if c := &o.contenders[i]; c.group == g && c.Role == servicebench.Floor {
			return o.cpu(i)
		}
	}
	return math.NaN()
}

// Markdown returns the table.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Closed loop, saturated: %d messages on their way over %d connections, one stream on each; %s keys, every request admitted; median of %d rounds of %v.\n\n",
		InFlight, connections, report.Number(float64(o.Plan.Keys)), o.Plan.Rounds, o.Plan.Slice)
	t := report.Table{Columns: []string{"", "server CPU a check, µs", "÷ echo", "checks/s, load generator on the same cores"}}
	for i := range o.contenders {
		c := &o.contenders[i]
		t.Add(c.Name, report.Number(o.cpu(i)), report.Times(report.Ratio(o.cpu(i), o.floor(c.group))),
			report.Number(report.MedianOf(o.Results[i].Samples, servicebench.Sample.PerSecond)))
	}
	b.WriteString(t.String())
	b.WriteByte('\n')
	for i := range o.contenders {
		fmt.Fprintf(&b, "- **%s**: %s.\n", o.contenders[i].Name, o.contenders[i].Note)
	}
	b.WriteString("\n" + report.Bars(o.Bars()))
	return b.String()
}

// Bars holds Headgate's figures against the bounds that the project has set
// itself.
func (o *Outcome) Bars() []report.Bar {
	bounds := map[group]float64{calls: 1.5, streams: 1.6}
	what := map[group]string{calls: "a bare unary echo", streams: "a bare stream echo"}
	var bars []report.Bar
	for i := range o.contenders {
		c := &o.contenders[i]
		if c.Role == servicebench.Ours {
			bars = append(bars, report.Bar{
				What: c.Name + ": server CPU a check ÷ " + what[c.group], Bound: bounds[c.group], AtMost: true,
				Got: report.Ratio(o.cpu(i), o.floor(c.group)),
			})
		}
	}
	return bars
}
