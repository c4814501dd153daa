package respbench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/grpcbench"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servicebench"
)

// The shape of the load: as many commands are on their way as messages are over
// gRPC, and as many connections are used one at a time as over HTTP.
const (
	connections = 4
	together    = grpcbench.InFlight / connections
)

// The names of what others are held against.
const (
	overGRPC = "gRPC, Check"
	overHTTP = "HTTP JSON, by rule and key"
)

const allowed = "*12\r\n$7\r\nallowed\r\n:1\r\n"

func byRule(key string) []string { return []string{"HG.CHECK", servicebench.RuleName, key} }

func byEntries(key string) []string { return []string{"HG.CHECK", "DESC", "api_key", key} }

func throttle(key string) []string {
	return []string{"CL.THROTTLE", key, "999999", "1000000", "3600"}
}

func ping(string) []string { return []string{"PING"} }

// build builds the server from the module at source, and puts it and its policy
// into dir.
func build(ctx context.Context, source, dir string) (binary, policy string, err error) {
	if binary, err = servicebench.Build(ctx, source, dir); err != nil {
		return "", "", err
	}
	policy = filepath.Join(dir, "resp.yaml")
	if err := os.WriteFile(policy, []byte(servicebench.Policy), 0o600); err != nil {
		return "", "", fmt.Errorf("respbench: %w", err)
	}
	return binary, policy, nil
}

// field has all contenders.
func field(plan servicebench.Plan, binary, policy string) []servicebench.Contender {
	serve := func(args ...string) []string {
		return append([]string{binary, "serve", "--config", policy, "--store", "memory"}, args...)
	}
	overRESP := func(name, note string, role servicebench.Role, q question) servicebench.Contender {
		return servicebench.Contender{
			Name: name, Note: note, Role: role, Command: serve("--listen", "127.0.0.1:0", "--resp-listen", "ADDR"),
			Load: func(ctx context.Context, addr string, d time.Duration) (int, error) {
				return q.load(ctx, addr, plan.Keys, d)
			},
		}
	}
	return []servicebench.Contender{
		overRESP("RESP, HG.CHECK, pipelined", "by rule and key; the answer has the state of the limit",
			servicebench.Ours, question{byRule, allowed, connections, together}),
		overRESP("RESP, HG.CHECK by entries, pipelined", "by a descriptor with an API key",
			servicebench.Ours, question{byEntries, allowed, connections, together}),
		overRESP("RESP, CL.THROTTLE, pipelined", "the limit is sent along; five integers are the answer",
			servicebench.Ours, question{throttle, "*5\r\n:0\r\n", connections, together}),
		overRESP("RESP, PING, pipelined", "what the protocol alone costs",
			servicebench.Other, question{ping, "+PONG\r\n", connections, together}),
		overRESP("RESP, HG.CHECK, one at a time", "by rule and key, as a client without pipelines asks",
			servicebench.Other, question{byRule, allowed, plan.Connections, 1}),
		{
			Name: overGRPC, Note: "a call for each check, by rule and key", Role: servicebench.Other,
			Command: serve("--listen", "127.0.0.1:0", "--grpc-listen", "ADDR"), Load: grpcbench.Check(plan.Keys),
		},
		{
			Name: overHTTP, Note: "POST /v1/check, a request for each check", Role: servicebench.Other,
			Command: serve("--listen", "ADDR"),
		},
	}
}

// Outcome is what a run has measured.
type Outcome struct{ *servicebench.Outcome }

// Run measures Headgate's server, built from the module at source into dir.
func Run(ctx context.Context, plan servicebench.Plan, source, dir string) (*Outcome, error) {
	binary, policy, err := build(ctx, source, dir)
	if err != nil {
		return nil, err
	}
	o, err := servicebench.Run(ctx, plan, field(plan, binary, policy))
	return &Outcome{o}, err
}

// cpu is the CPU time for each check of the contender of that name, in
// microseconds.
func (o *Outcome) cpu(name string) float64 {
	for i := range o.Results {
		if r := &o.Results[i]; r.Contender.Name == name {
			return report.MedianOf(r.Samples, servicebench.Sample.CPUEach)
		}
	}
	panic("respbench: there is no contender " + name)
}

// Markdown returns the table.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Closed loop, saturated: %d pipelines of %d commands each; %d calls on their way over gRPC; %d connections one at a time, and over HTTP. "+
		"%s keys, every request admitted; median of %d rounds of %v.\n\n",
		connections, together, grpcbench.InFlight, o.Plan.Connections, report.Number(float64(o.Plan.Keys)), o.Plan.Rounds, o.Plan.Slice)
	t := report.Table{Columns: []string{"", "server CPU a check, µs", "checks a CPU second ÷ gRPC", "÷ HTTP JSON", "checks/s, load generator on the same cores"}}
	for i := range o.Results {
		r := &o.Results[i]
		cpu := o.cpu(r.Contender.Name)
		t.Add(r.Contender.Name, report.Number(cpu), report.Times(report.Ratio(o.cpu(overGRPC), cpu)), report.Times(report.Ratio(o.cpu(overHTTP), cpu)),
			report.Number(report.MedianOf(r.Samples, servicebench.Sample.PerSecond)))
	}
	b.WriteString(t.String())
	b.WriteByte('\n')
	for i := range o.Results {
		fmt.Fprintf(&b, "- **%s**: %s.\n", o.Results[i].Contender.Name, o.Results[i].Contender.Note)
	}
	b.WriteString("\n" + report.Bars(o.Bars()))
	return b.String()
}

// Bars holds Headgate's figures against the bounds that the project has set
// itself.
func (o *Outcome) Bars() []report.Bar {
	var bars []report.Bar
	for i := range o.Results {
		if c := &o.Results[i].Contender; c.Role == servicebench.Ours {
			bars = append(bars, report.Bar{
				What: c.Name + ": checks a CPU second ÷ gRPC", Bound: 5,
				Got: report.Ratio(o.cpu(overGRPC), o.cpu(c.Name)),
			})
		}
	}
	return bars
}
