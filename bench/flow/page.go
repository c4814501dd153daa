package flow

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/flow/simulate"
)

// scenarios are those of the page, in its order.
func scenarios() []simulate.Scenario {
	return []simulate.Scenario{
		simulate.Quiet(), simulate.Overload(), simulate.Halved(), simulate.Slowed(), simulate.Long(),
		simulate.Timeouts(), simulate.FastFailures(), simulate.Burst(), simulate.Stalled(),
		simulate.Classes(), simulate.NoisyTenant(), simulate.Layers(true), simulate.Layers(false),
	}
}

// charted are the scenarios that have a chart, with the names of their files.
var charted = map[string]string{
	simulate.Overload().Name: "overload", simulate.Halved().Name: "halved",
	simulate.Slowed().Name: "slowed", simulate.Long().Name: "long",
	simulate.Timeouts().Name: "timeouts", simulate.FastFailures().Name: "failures",
}

// page is docs/flow-simulation.md and its charts.
type page struct {
	results map[string][]*simulate.Result // by scenario, in the order of contenders
	seeds   []byte                        // the part with many seeds
}

const intro = `# Gates in a simulator

Headgate's adaptive limit and its queue beside what one would use otherwise, before the
same model of a server, in virtual time. ` + "`make simulate`" + ` writes this page.

The server has 20 workers, each of which takes 50 ms for a request (log-normal, σ = 0.5):
it gets 400 requests a second done. The best limit is 22, the smallest that gets 97 % of
that done under too much load. Callers wait for a second, unless it says otherwise, and work that has begun goes on without them. Limits begin at 20
and may go up to 1000. All contenders meet the same requests at the same instants.

- **goodput**: calls that were answered in time, as a share of what the server can do
- **p99**: how long requests took that were let in, the queue included
- **limit**: its mean, and its highest mean over ten seconds
- **refused**: attempts that were refused, as a share of all

Peers are set up as their documents show them. Two things are done in their favour: BBR,
which sheds only while the processor is busy, is told that it always is; and the
throttler, which has no limit, is told of every timeout. Peers that have no word for "this
says nothing about load" take a fast failure for a success, as their handlers do.
`

// files are the texts of the page and its charts, by their names in docs.
func (p *page) files() map[string][]byte {
	files := make(map[string][]byte)
	var b bytes.Buffer
	b.WriteString(intro)
	for _, s := range scenarios() {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Name)
		if chart, ok := charted[s.Name]; ok {
			name := "flow-simulation/" + chart + ".svg"
			files[name] = p.chart(s)
			fmt.Fprintf(&b, "![Limit and goodput over time: %s](%s)\n\n", s.Name, name)
		}
		p.table(&b, s)
	}
	b.Write(p.seeds)
	files["flow-simulation.md"] = b.Bytes()
	return files
}

func (p *page) table(b *bytes.Buffer, s simulate.Scenario) {
	halves := s.Name == simulate.Halved().Name || s.Name == simulate.Slowed().Name
	classes, tenants := s.Name == simulate.Classes().Name, s.Name == simulate.NoisyTenant().Name
	layers := s.Name == simulate.Layers(true).Name || s.Name == simulate.Layers(false).Name
	b.WriteString("| | goodput | p99 | limit | refused |")
	rule := "|---|---|---|---|---|"
	column := func(name string, is bool) {
		if is {
			fmt.Fprintf(b, " %s |", name)
			rule += "---|"
		}
	}
	column("limit within 20 % of the best after the loss, after the return", halves)
	column("critical calls served", classes)
	column("Jain's index of the tenants", tenants)
	column("attempts ÷ calls", layers)
	fmt.Fprintf(b, "\n%s\n", rule)
	for _, r := range p.results[s.Name] {
		limit := "–"
		if _, mean, _ := r.Limits(s.From, s.Length); !math.IsNaN(mean) {
			limit = fmt.Sprintf("%.0f, %.0f", mean, highestMean(r, 10*time.Second))
		}
		fmt.Fprintf(b, "| %s | %.2f | %d ms | %s | %.1f %% |", r.Subject, r.Goodput(s.From, s.Length),
			r.Latency(0.99).Milliseconds(), limit, 100*float64(r.All.Refused)/float64(r.All.Tries))
		if halves {
			fmt.Fprintf(b, " %s, %s |", after(r.Reaches(simulate.HalvedAt, simulate.BackAt, 0.2)),
				after(r.Reaches(simulate.BackAt, s.Length, 0.2)))
		}
		if classes {
			critical := r.Classes[1]
			fmt.Fprintf(b, " %.2f %% |", 100*float64(critical.Good)/float64(critical.Calls))
		}
		if tenants {
			fmt.Fprintf(b, " %.3f |", r.Jain())
		}
		if layers {
			fmt.Fprintf(b, " %.2f |", float64(r.All.Tries)/float64(r.All.Calls))
		}
		b.WriteByte('\n')
	}
}

func after(d time.Duration) string {
	if d < 0 {
		return "never"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// highestMean is the highest mean of the limit over any stretch of that length.
func highestMean(r *simulate.Result, stretch time.Duration) float64 {
	most := 0.0
	for at := r.Scenario.From; at+stretch <= r.Scenario.Length; at += stretch {
		_, mean, _ := r.Limits(at, at+stretch)
		most = max(most, mean)
	}
	return most
}
