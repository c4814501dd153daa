package flow

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/headgate/headgate/flow/simulate"
)

// scenarios are those that run once for each contender.
func scenarios() []simulate.Scenario {
	return []simulate.Scenario{
		simulate.Quiet(), simulate.Overload(), simulate.Halved(), simulate.Timeouts(), simulate.FastFailures(),
		simulate.Classes(), simulate.NoisyTenant(), simulate.Layers(true),
	}
}

// charted are the scenarios that have a chart, with the names of their files.
var charted = map[string]string{simulate.Overload().Name: "overload", simulate.Halved().Name: "halved"}

// page is docs/flow-simulation.md and its charts.
type page struct {
	results map[string][]*simulate.Result // by scenario, in the order of contenders
	cells   map[string][]cell             // by scenario, in the order of entrants
	back    map[string]string             // by scenario, of those in which something changes
}

const intro = `# Gates in a simulator

Headgate's adaptive limit beside others, in virtual time. ` + "`make simulate`" + ` writes this page. How to set
it up: [flow.md](flow.md).

A server has 20 workers, and a request takes 50 ms (log-normal, σ = 0.5), if not said otherwise. Requests
wait in one queue. In a **shared** server nobody waits: all share the workers evenly, as goroutines share
processors, and all become slower together. Callers wait for one or two seconds, and work that has begun goes
on without them. Limits begin at 20 and may go up to 1000. All contenders meet the same requests.

Cells have the mean and the worst of all runs: 30 of the knee, 2 of failsafe-go (its defaults, and the
settings of Tripwire, its author's simulator), and 5 of others, implemented as they were published. **Goodput**
is the work answered in time, as a share of what the best fixed limit gets done (tried: 3 to 1000).
**Refused** is in percent of attempts. Nothing was chosen by looking at runs of scenarios with a \*.
`

const soon = `
## How soon

Seconds after the change, or after the start, until nine tenths of the capacity get done again: median and worst.
`

const once = `
## All gates, one run of each

Goodput as a share of what the server can do, and the 99th percentile of what was let in. BBR is told that the
processor is always busy, and the throttler of every timeout. Peers without a word for "this says nothing
about load" take a fast failure for a success. The last three columns show what [the queue](flow.md#shedding)
is for: critical calls served while the rest is nine times the capacity; Jain's index of fairness among ten
tenants, one of which sends a hundred times as much; and attempts per call through five layers that try
three times each, if rejections say not to retry.

![Limit and goodput over time: overload ×10](flow-simulation/overload.svg)

![Limit and goodput over time: half the workers](flow-simulation/halved.svg)

`

// files are the texts of the page and its charts, by their names in docs.
func (p *page) files() map[string][]byte {
	files := make(map[string][]byte)
	var b bytes.Buffer
	b.WriteString(intro)
	begin := func(first string) {
		fmt.Fprintf(&b, "\n| %s |", first)
		for _, e := range entrants {
			fmt.Fprintf(&b, " %s |", e.name)
		}
		fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(entrants)))
	}
	var back []string
	for _, g := range groups() {
		fmt.Fprintf(&b, "\n## %s\n", g.title)
		begin("")
		if g.healthy && g.scenarios[0].Server.Shared {
			fmt.Fprintf(&b, "| the worst of all scenarios |%s\n", g.text(p.worst(g)))
			continue
		}
		for _, s := range g.scenarios {
			fmt.Fprintf(&b, "| %s |%s\n", strings.TrimSuffix(s.Name, ", shared"), g.text(p.cells[s.Name]))
			if p.back[s.Name] != "" {
				back = append(back, s.Name)
			}
		}
	}
	b.WriteString(soon)
	begin("")
	for _, name := range back {
		fmt.Fprintf(&b, "| %s |%s\n", name, p.back[name])
	}
	b.WriteString(once)
	p.table(&b)
	for name, file := range charted {
		for _, s := range scenarios() {
			if s.Name == name {
				files["flow-simulation/"+file+".svg"] = p.chart(s)
			}
		}
	}
	files["flow-simulation.md"] = b.Bytes()
	return files
}

// text has the cells as they are in a row of the group's table.
func (g group) text(cells []cell) (text string) {
	digits := 2
	if g.healthy {
		digits = 1
	}
	for _, c := range cells {
		text += fmt.Sprintf(" %.*f/%.*f |", digits, c.mean, digits, c.worst)
	}
	return text
}

// worst has the largest mean and the largest of all runs, for each entrant.
func (p *page) worst(g group) []cell {
	worst := make([]cell, len(entrants))
	for _, s := range g.scenarios {
		for i, c := range p.cells[s.Name] {
			worst[i] = cell{max(worst[i].mean, c.mean), max(worst[i].worst, c.worst)}
		}
	}
	return worst
}

// table has a row for each contender, and a column for each scenario that runs once.
func (p *page) table(b *bytes.Buffer) {
	b.WriteString("| |")
	for _, s := range scenarios() {
		fmt.Fprintf(b, " %s |", s.Name)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(scenarios())))
	for i, c := range contenders {
		fmt.Fprintf(b, "| %s |", c.name)
		for _, s := range scenarios() {
			r := p.results[s.Name][i]
			switch s.Name {
			case simulate.Classes().Name:
				fmt.Fprintf(b, " %.1f %% |", 100*float64(r.Classes[1].Good)/float64(r.Classes[1].Calls))
			case simulate.NoisyTenant().Name:
				fmt.Fprintf(b, " %.2f |", r.Jain())
			case simulate.Layers(true).Name:
				fmt.Fprintf(b, " %.2f |", float64(r.All.Tries)/float64(r.All.Calls))
			default:
				fmt.Fprintf(b, " %.2f, %d ms |", goodput(r), r.Latency(0.99).Milliseconds())
			}
		}
		b.WriteByte('\n')
	}
}
