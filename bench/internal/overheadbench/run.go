package overheadbench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servicebench"
	"github.com/headgate/headgate/bench/internal/workload"
)

// The names of what is measured.
const (
	bare     = "no limit"
	inMemory = "limited, memory store"
	inRedis  = "limited, Redis"
)

// Outcome is what a run has measured.
type Outcome struct {
	Plan servicebench.Plan
	// Saturated is how many requests a second the server with Redis answers at most.
	Saturated float64
	Times     []Times
}

// Times are how long requests took: for each round some quantiles.
type Times struct {
	Name              string
	Median, P99, P999 []time.Duration
}

// Run measures the servers that the program is when it is told
// "echo -handler limited -listen ADDR -upstream STORE", with the Redis at that
// address.
func Run(ctx context.Context, plan servicebench.Plan, program, redis string) (_ *Outcome, err error) {
	asked := make([][]byte, plan.Keys)
	for i := range asked {
		asked[i] = fmt.Appendf(nil, "GET /items/%d HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: bench/1.0\r\nAccept: application/json\r\nX-API-Key: %s\r\n\r\n", i, workload.Key(i))
	}
	tell := func(format string, args ...any) {
		if plan.Progress != nil {
			plan.Progress("overhead: "+format, args...)
		}
	}
	o := &Outcome{Plan: plan, Times: []Times{{Name: bare}, {Name: inMemory}, {Name: inRedis}}}
	addrs := make([]string, len(o.Times))
	for i, store := range []string{Unlimited, InMemory, "redis://" + redis} {
		addr, stop, err := servicebench.Start(ctx, []string{program, "echo", "-handler", "limited", "-listen", "ADDR", "-upstream", store})
		if err != nil {
			return nil, fmt.Errorf("overheadbench: %s: %w", o.Times[i].Name, err)
		}
		defer func() { _ = stop() }() // What it has to say was said when it was measured.
		addrs[i] = addr
	}
	var most []float64
	for range plan.Rounds {
		tell("saturated")
		began := time.Now()
		n, err := servicebench.Load(ctx, addrs[2], plan.Connections, asked, plan.Slice)
		if err != nil {
			return nil, fmt.Errorf("overheadbench: %w", err)
		}
		most = append(most, float64(n)/time.Since(began).Seconds())
	}
	o.Saturated = report.Median(most)
	for round := range plan.Rounds {
		for i := range o.Times {
			i = (i + round) % len(o.Times)
			t := &o.Times[i]
			tell("open loop, round %d of %d: %s", round+1, plan.Rounds, t.Name)
			// The first tenth warms up what is new.
			if _, err := servicebench.Paced(ctx, addrs[i], plan.Connections, asked, o.Saturated/2, plan.Slice/10); err != nil {
				return nil, fmt.Errorf("overheadbench: %w", err)
			}
			took, err := servicebench.Paced(ctx, addrs[i], plan.Connections, asked, o.Saturated/2, plan.Slice)
			if err != nil {
				return nil, fmt.Errorf("overheadbench: %w", err)
			}
			t.Median = append(t.Median, servicebench.Quantile(took, 0.5))
			t.P99 = append(t.P99, servicebench.Quantile(took, 0.99))
			t.P999 = append(t.P999, servicebench.Quantile(took, 0.999))
		}
	}
	return o, nil
}

// millis is the median of times, in milliseconds.
func millis(times []time.Duration) float64 {
	return report.MedianOf(times, func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 })
}

// Markdown returns the table.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "GET with an answer of %d bytes; %s keys, every request admitted, three headers. Open loop at %s requests a second over %d connections, half of what the server with Redis answers when it is saturated; median of %d rounds of %v.\n\n",
		len(body), report.Number(float64(o.Plan.Keys)), report.Number(o.Saturated/2), o.Plan.Connections, o.Plan.Rounds, o.Plan.Slice)
	t := report.Table{Columns: []string{"", "median, ms", "99 %, ms", "99.9 %, ms"}}
	for _, one := range o.Times {
		t.Add(one.Name, report.Number(millis(one.Median)), report.Number(millis(one.P99)), report.Number(millis(one.P999)))
	}
	b.WriteString(t.String() + "\n" + report.Bars(o.Bars()))
	return b.String()
}

// Bars holds the figures against the bounds that the project has set itself.
func (o *Outcome) Bars() []report.Bar {
	return []report.Bar{{
		What: "a limit in Redis: added to the 99th percentile at half load, ms", Bound: 1, AtMost: true,
		Got: millis(o.Times[2].P99) - millis(o.Times[0].P99),
	}}
}
