package servicebench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/workload"
)

// Contender is one server under measurement.
type Contender struct {
	Name, Note string
	Role       Role
	// Command starts the server; "ADDR" in its arguments stands for the address
	// to listen on. It must answer POST /v1/check with 200.
	Command []string
	// Body is the JSON document that asks about a key; by default, one check
	// that names rule and key.
	Body func(key string) any
	// Load keeps the server busy for about d and returns how many requests were
	// answered. Nil asks over HTTP/1.1, by Body.
	Load func(ctx context.Context, addr string, d time.Duration) (int, error)
}

// byRule asks for one check that names rule and key.
func byRule(key string) any {
	return checkRequest{Checks: []check{{Rule: RuleName, Key: key, Cost: 1}}}
}

// byDescriptor leaves it to the server to find the rules and keys that apply.
func byDescriptor(key string) any {
	return map[string]any{"descriptor": map[string]string{"api_key": key}, "cost": 1}
}

// Role is a contender's part in the comparison.
type Role uint8

const (
	// Other is a server shown for comparison only.
	Other Role = iota
	// Ours is Headgate's.
	Ours
	// Floor is what Headgate's is held against.
	Floor
)

// Plan is how much is measured.
type Plan struct {
	// Rounds is how often each contender is measured; the table shows medians.
	Rounds int
	// Slice is how long one measurement lasts.
	Slice time.Duration
	// Connections is how many requests are under way at the same time.
	Connections int
	// Keys is how many keys are asked about.
	Keys int
	// Progress is told what is being measured; nil if nobody wants to know.
	Progress func(format string, args ...any)
}

// Full is the plan of a run for the record: about a minute.
func Full() Plan {
	return Plan{Rounds: 5, Slice: 2500 * time.Millisecond, Connections: 64, Keys: 10_000}
}

// Short is the plan of a run that shows whether everything works.
func Short() Plan { return Plan{Rounds: 1, Slice: time.Second, Connections: 64, Keys: 1000} }

// RuleName is the rule that every request names.
const RuleName = "bench"

// Policy is the policy file that Headgate's server runs with: one rule, whose
// limit is never reached.
const Policy = `rules:
  - name: ` + RuleName + `
    per: [api_key]
    limits: [1000000 per 1h]
`

// Sample is one measurement.
type Sample struct {
	Requests int
	Elapsed  time.Duration
	CPU      time.Duration // of the server's process
}

// PerSecond is the throughput in requests per second.
func (s Sample) PerSecond() float64 { return float64(s.Requests) / s.Elapsed.Seconds() }

// CPUEach is the server's CPU time for each request, in microseconds.
func (s Sample) CPUEach() float64 { return float64(s.CPU.Microseconds()) / float64(s.Requests) }

// Result is what was measured of one contender.
type Result struct {
	Contender Contender
	Samples   []Sample
}

// Outcome is what a run has measured.
type Outcome struct {
	Plan    Plan
	Results []Result
}

// Run starts all contenders, saturates one after the other, round by round, and
// stops them.
func Run(ctx context.Context, plan Plan, contenders []Contender) (_ *Outcome, err error) {
	o := &Outcome{Plan: plan}
	processes := make([]*process, len(contenders))
	for i, c := range contenders {
		if processes[i], err = start(ctx, c.Command); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		defer func() { err = errors.Join(err, processes[i].stop()) }()
		o.Results = append(o.Results, Result{Contender: c})
	}
	for round := range plan.Rounds {
		for i := range contenders {
			i = (i + round) % len(contenders)
			if plan.Progress != nil {
				plan.Progress("service: round %d of %d: %s", round+1, plan.Rounds, contenders[i].Name)
			}
			sample, err := processes[i].measure(ctx, plan, &contenders[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", contenders[i].Name, err)
			}
			o.Results[i].Samples = append(o.Results[i].Samples, sample)
		}
	}
	return o, nil
}

// overHTTP is the load of contenders that have none of their own.
func (p *process) overHTTP(plan Plan, ask func(key string) any) (func(context.Context, string, time.Duration) (int, error), error) {
	if ask == nil {
		ask = byRule
	}
	requests := make([][]byte, plan.Keys)
	for i := range requests {
		body, err := json.Marshal(ask(workload.Key(i)))
		if err != nil {
			return nil, fmt.Errorf("servicebench: %w", err)
		}
		requests[i] = request(p.addr, string(body))
	}
	return func(ctx context.Context, addr string, d time.Duration) (int, error) {
		return load(ctx, addr, plan.Connections, requests, d)
	}, nil
}

// measure saturates the server, after a short while in which connections and
// keys are new.
func (p *process) measure(ctx context.Context, plan Plan, c *Contender) (_ Sample, err error) {
	load := c.Load
	if load == nil {
		if load, err = p.overHTTP(plan, c.Body); err != nil {
			return Sample{}, err
		}
	}
	if _, err := load(ctx, p.addr, plan.Slice/10); err != nil {
		return Sample{}, err
	}
	before, err := p.cpu()
	if err != nil {
		return Sample{}, err
	}
	began := time.Now()
	n, err := load(ctx, p.addr, plan.Slice)
	elapsed := time.Since(began)
	if err != nil {
		return Sample{}, err
	}
	after, err := p.cpu()
	if err != nil {
		return Sample{}, err
	}
	if n == 0 {
		return Sample{}, errors.New("servicebench: no request was answered")
	}
	return Sample{Requests: n, Elapsed: elapsed, CPU: after - before}, nil
}
