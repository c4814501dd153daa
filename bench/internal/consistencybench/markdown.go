package consistencybench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servicebench"
)

// percent writes a share.
func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

// over is by how much a busy key was admitted more than its limit allows, at worst,
// and early how much less the busy keys were, all together.
func (r *Result) over() float64 { return max(0, slices.Max(r.Admitted)-1) }

func (r *Result) early() float64 {
	sum := 0.0
	for _, share := range r.Admitted {
		sum += share
	}
	return max(0, 1-sum/float64(len(r.Admitted)))
}

func (r *Result) times() []string {
	var cells []string
	for _, q := range []float64{0.5, 0.99, 0.999} {
		cells = append(cells, report.Number(float64(servicebench.Quantile(r.Times, q).Microseconds())/1000))
	}
	return cells
}

// Markdown returns the tables.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d servers, one Redis, POST /v1/check: %s requests a second in an open loop over %d connections for %v; 1/%d of them for each of %d keys, the others for %s keys. ",
		nodes, report.Number(o.Plan.PerSecond), o.Plan.Connections, o.Plan.For, perBusy, busy, report.Number(float64(o.Plan.Tail)))
	b.WriteString("Times are those of the whole request, from when it was due.\n\n**Within the limit**: every request is admitted.\n\n")
	within := report.Table{Columns: []string{"", "script calls a decision", "Redis's CPU a decision, µs", "median, ms", "99 %, ms", "99.9 %, ms"}}
	for i := range o.Within {
		r := &o.Within[i]
		within.Add(append([]string{r.Mode.Name, report.Number(r.Calls), report.Number(r.Redis)}, r.times()...)...)
	}
	fmt.Fprintf(&b, "%s\n**Beyond the limit**: %d per second for each key and twice as many at once, and the %d keys ask for twice as much.\n\n", within.String(), o.Limit, busy)
	beyond := report.Table{Columns: []string{"", "script calls a decision", "Redis's CPU a decision, µs", "median, ms", "99 %, ms", "denied", "admitted beyond the limit, at worst", "denied early"}}
	for i := range o.Beyond {
		r := &o.Beyond[i]
		cells := append([]string{r.Mode.Name, report.Number(r.Calls), report.Number(r.Redis)}, r.times()[:2]...)
		beyond.Add(append(cells, percent(r.Denied), percent(r.over()), percent(r.early()))...)
	}
	b.WriteString(beyond.String() + "\n" + report.Bars(o.Bars()))
	return b.String()
}

// Bars holds the figures against the bounds that the project has set itself.
func (o *Outcome) Bars() []report.Bar {
	var bars []report.Bar
	for i := range o.Beyond {
		r := &o.Beyond[i]
		bound := 0.0
		if r.Mode.Name == "async" {
			bound = 1
		}
		bars = append(bars, report.Bar{What: r.Mode.Name + ": admitted beyond the limit, %", Bound: bound, AtMost: true, Got: 100 * r.over()})
	}
	return bars
}
