package gatewaybench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servicebench"
)

// The names of the contenders that others are held against.
const (
	bare = "httputil.ReverseProxy"
	ours = "Headgate gateway, one rule"
)

// Outcome is what a run has measured.
type Outcome struct {
	*servicebench.Outcome
	// PerSecond is the load of the open loop.
	PerSecond float64
	Times     []Times
}

// Times are how long requests took in the open loop: for each round the median and
// the 99th percentile.
type Times struct {
	Name        string
	Median, P99 []time.Duration
}

// rules is a policy in which three rules bind each request.
const rules = servicebench.Policy + `
  - name: items
    match: { route: "GET /items/{id}" }
    per: [api_key, route]
    limits: [1000000 per 1h]
  - name: everyone
    per: all
    limits: [1000000000 per 1d]
`

// settle has what a request costs under the rule settled when it has been answered, in
// KiB of the answer; what is estimated is not what it costs.
const settle = `settle: [{ rule: ` + servicebench.RuleName + `, per: 1024, estimate: 4 }]
`

// Run measures the gateway, built from the module at source into dir, and a
// ReverseProxy, which is what the program does that is told
// "echo -handler proxy -listen ADDR -upstream URL".
func Run(ctx context.Context, plan servicebench.Plan, program, source, dir string) (_ *Outcome, err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("gatewaybench: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop()
	serving.Go(func() { _ = serve(ctx, l, http.HandlerFunc(answer)) }) // Whoever asks it would notice.
	all, err := field(ctx, plan, program, source, dir, "http://"+l.Addr().String())
	if err != nil {
		return nil, err
	}
	o := new(Outcome)
	if o.Outcome, err = servicebench.Run(ctx, plan, all); err != nil {
		return nil, err
	}
	o.PerSecond = o.median(ours, servicebench.Sample.PerSecond) / 2
	return o, o.measureTimes(ctx, plan, all, l.Addr().String())
}

// field has all contenders.
func field(ctx context.Context, plan servicebench.Plan, program, source, dir, upstream string) ([]servicebench.Contender, error) {
	binary, err := servicebench.Build(ctx, source, dir)
	if err != nil {
		return nil, err
	}
	asked := requests(plan.Keys)
	load := func(ctx context.Context, addr string, d time.Duration) (int, error) {
		return servicebench.Load(ctx, addr, plan.Connections, asked, d)
	}
	gateway := func(name, note, policy string, role servicebench.Role, args ...string) (servicebench.Contender, error) {
		file := filepath.Join(dir, fmt.Sprintf("policy-%d.yaml", len(policy)))
		if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
			return servicebench.Contender{}, fmt.Errorf("gatewaybench: %w", err)
		}
		command := append([]string{binary, "gateway", "--listen", "ADDR", "--admin-listen", "127.0.0.1:0", "--upstream", upstream, "--config", file}, args...)
		return servicebench.Contender{Name: name, Note: note, Role: role, Command: command, Load: load}, nil
	}
	one, err1 := gateway(ours, "a limit for each API key, in the memory store, told in three headers", servicebench.Policy, servicebench.Ours)
	three, err2 := gateway("Headgate gateway, three rules and routes", "one for each API key, one for each API key and route, one for all", rules, servicebench.Other)
	file := filepath.Join(dir, "settle.yaml")
	err3 := os.WriteFile(file, []byte(settle), 0o600)
	settled, err4 := gateway("Headgate gateway, one rule, settled by bytes", "an estimate is reserved before, and settled by the bytes of the answer after it", servicebench.Policy, servicebench.Other, "--gateway", file)
	logged, err5 := gateway("Headgate gateway, one rule, with the access log", "a line for each request", servicebench.Policy, servicebench.Other, "--access-log", "--log-format", "json")
	return []servicebench.Contender{
		{
			Name: bare, Role: servicebench.Floor, Load: load, Note: "no limits; as many idle connections, the same headers about the client, buffers that are used again",
			Command: []string{program, "echo", "-handler", "proxy", "-listen", "ADDR", "-upstream", upstream},
		},
		one, three, settled, logged,
	}, errors.Join(err1, err2, err3, err4, err5)
}

// direct is asking the upstream server itself.
const direct = "no proxy"

// measureTimes measures how long requests take at half load.
func (o *Outcome) measureTimes(ctx context.Context, plan servicebench.Plan, all []servicebench.Contender, upstream string) error {
	asked := requests(plan.Keys)
	processes := map[string]string{direct: upstream}
	names := []string{direct}
	for _, c := range all[:2] {
		addr, stop, err := servicebench.Start(ctx, c.Command)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		defer func() { _ = stop() }() // What it has to say was said when it was measured.
		processes[c.Name] = addr
		names = append(names, c.Name)
	}
	o.Times = make([]Times, len(names))
	for round := range plan.Rounds {
		for i := range names {
			i = (i + round) % len(names)
			t := &o.Times[i]
			t.Name = names[i]
			if plan.Progress != nil {
				plan.Progress("gateway: open loop, round %d of %d: %s", round+1, plan.Rounds, t.Name)
			}
			// The first tenth warms up what is new.
			if _, err := servicebench.Paced(ctx, processes[t.Name], plan.Connections, asked, o.PerSecond, plan.Slice/10); err != nil {
				return err
			}
			took, err := servicebench.Paced(ctx, processes[t.Name], plan.Connections, asked, o.PerSecond, plan.Slice)
			if err != nil {
				return err
			}
			t.Median, t.P99 = append(t.Median, servicebench.Quantile(took, 0.5)), append(t.P99, servicebench.Quantile(took, 0.99))
		}
	}
	return nil
}

// median is that of what was measured of a contender.
func (o *Outcome) median(name string, of func(servicebench.Sample) float64) float64 {
	for i := range o.Results {
		if r := &o.Results[i]; r.Contender.Name == name {
			return report.MedianOf(r.Samples, of)
		}
	}
	panic("gatewaybench: there is no contender " + name)
}

// millis is the median of times, in milliseconds.
func millis(times []time.Duration) float64 {
	return report.MedianOf(times, func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 })
}

// added is by how much the gateway's 99th percentile is above that of another way, in
// milliseconds.
func (o *Outcome) added(to string) float64 {
	by := make(map[string]float64)
	for _, t := range o.Times {
		by[t.Name] = millis(t.P99)
	}
	return by[ours] - by[to]
}

// Markdown returns the tables.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "GET with an answer of %d bytes, from an upstream server on the same machine. Closed loop over %d keep-alive connections, saturated; %s keys, every request admitted; median of %d rounds of %v. All proxies are processes of their own, with the settings that they come with: the gateway lets its heap grow by [16 MiB](operations.md#memory) before it is collected, and the ReverseProxy leaves that to Go.\n\n",
		len(body), o.Plan.Connections, report.Number(float64(o.Plan.Keys)), o.Plan.Rounds, o.Plan.Slice)
	t := report.Table{Columns: []string{"", "proxy's CPU a request, µs", "÷ ReverseProxy", "requests/s, load generator and upstream on the same cores"}}
	floor := o.median(bare, servicebench.Sample.CPUEach)
	for i := range o.Results {
		name := o.Results[i].Contender.Name
		cpu := o.median(name, servicebench.Sample.CPUEach)
		t.Add(name, report.Number(cpu), report.Times(report.Ratio(cpu, floor)), report.Number(o.median(name, servicebench.Sample.PerSecond)))
	}
	b.WriteString(t.String() + "\n")
	for i := range o.Results {
		fmt.Fprintf(&b, "- **%s**: %s.\n", o.Results[i].Contender.Name, o.Results[i].Contender.Note)
	}
	fmt.Fprintf(&b, "\nOpen loop at %s requests a second, half of what the gateway passes on when it is saturated:\n\n", report.Number(o.PerSecond))
	times := report.Table{Columns: []string{"", "median, ms", "99 %, ms"}}
	for _, one := range o.Times {
		times.Add(one.Name, report.Number(millis(one.Median)), report.Number(millis(one.P99)))
	}
	b.WriteString(times.String() + "\n" + report.Bars(o.Bars()))
	return b.String()
}

// Bars holds the gateway's figures against the bounds that the project has set
// itself.
func (o *Outcome) Bars() []report.Bar {
	return []report.Bar{
		{
			What: ours + ": CPU a request ÷ ReverseProxy", Bound: 1.25, AtMost: true,
			Got: report.Ratio(o.median(ours, servicebench.Sample.CPUEach), o.median(bare, servicebench.Sample.CPUEach)),
		},
		{What: ours + ": added to the 99th percentile at half load, ms", Bound: 1, AtMost: true, Got: o.added(direct)},
		{What: ours + ": added to that of ReverseProxy, ms", Bound: 1, AtMost: true, Got: o.added(bare)},
	}
}
