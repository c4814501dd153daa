package serverbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
)

// contender is one server under measurement.
type contender struct {
	name, note string
	role       measure.Role
	// command starts the server, as [servers.Start] has it.
	command []string
	load    load
	// addr is that of a server that runs already, without a command.
	addr string
}

// start starts all contenders, and returns what stops them.
func start(ctx context.Context, contenders []contender) (rows measure.Rows, processes []*servers.Process, stop func() error, err error) {
	stop = func() (err error) {
		for _, p := range processes {
			err = errors.Join(err, p.Stop())
		}
		return err
	}
	for _, c := range contenders {
		p := &servers.Process{Addr: c.addr}
		if c.addr == "" {
			if p, err = servers.Start(ctx, c.command); err != nil {
				return nil, nil, nil, errors.Join(fmt.Errorf("%s: %w", c.name, err), stop())
			}
		}
		rows, processes = append(rows, measure.Row{Name: c.name, Note: c.note, Role: c.role}), append(processes, p)
	}
	return rows, processes, stop, nil
}

// load keeps the server at an address busy for about d, and returns how many requests were
// answered and, if it measures that, how long the answers took. An answer that is not right is an
// error.
type load func(ctx context.Context, addr string, d time.Duration) (measure.Sample, error)

// serverPlan is how much the parts measure that saturate servers: a minute or two for a run for the
// record. The callers are connections.
func serverPlan(w *measure.Work) measure.Plan {
	return measure.Choose(w,
		measure.Plan{Rounds: 5, Slice: 2500 * time.Millisecond, Callers: 64, Keys: 10_000},
		measure.Plan{Rounds: 1, Slice: time.Second, Callers: 64, Keys: 1000})
}

// ruleName is the rule that every request names.
const ruleName = "bench"

// policy is the policy file that Headgate's servers run with: one rule, whose
// limit is never reached.
const policy = `rules:
  - name: ` + ruleName + `
    per: [api_key]
    limits: [1000000 per 1h]
`

// serving builds Headgate's server and returns the command that runs it with the policy and the
// memory store.
func serving(ctx context.Context, w *measure.Work) (func(args ...string) []string, error) {
	binary, err := w.Server(ctx)
	if err != nil {
		return nil, err
	}
	file, err := w.Write("policy.yaml", policy)
	return func(args ...string) []string {
		return append([]string{binary, "serve", "--config", file, "--store", "memory"}, args...)
	}, err
}

// echoing is the command that runs this program as one of the servers that [Echo] has.
func echoing(w *measure.Work, handler, upstream string) []string {
	return []string{w.Program, "echo", "-listen", "ADDR", "-handler", handler, "-upstream", upstream}
}

// saturate starts all contenders, saturates one after the other, round by round, and
// stops them. Before each measurement there is a short while in which connections and keys are
// new.
func saturate(ctx context.Context, w *measure.Work, plan measure.Plan, contenders []contender) (_ measure.Rows, err error) {
	rows, processes, stop, err := start(ctx, contenders)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return rows, plan.Turns(ctx, w, rows, nil, func(_, _, i int) (measure.Sample, error) {
		p, load := processes[i], contenders[i].load
		if _, err := load(ctx, p.Addr, plan.Slice/10); err != nil {
			return measure.Sample{}, err
		}
		before, err1 := p.CPU()
		began := time.Now()
		s, err := load(ctx, p.Addr, plan.Slice)
		s.Elapsed = time.Since(began)
		after, err2 := p.CPU()
		s.Server = after - before
		if err == nil && s.Done == 0 {
			err = errors.New("no request was answered")
		}
		return s, errors.Join(err, err1, err2)
	})
}

// comparison is how the CPU time of servers is compared with that of the floor.
type comparison struct {
	// cpu, floor and throughput are the columns.
	cpu, floor, throughput string
	// bound is what our rows must not exceed, and bar what that is called.
	bound float64
	bar   string
}

// measure saturates contenders and writes their table and notes.
func (c *comparison) measure(ctx context.Context, w *measure.Work, plan measure.Plan, t *report.Text, contenders []contender) (measure.Rows, error) {
	rows, err := saturate(ctx, w, plan, contenders)
	if err != nil {
		return nil, err
	}
	t.Say("%s", c.table(t, rows))
	rows.Notes(t)
	return rows, nil
}

// table returns the table, and sets the bars.
func (c *comparison) table(t *report.Text, rows measure.Rows) *report.Table {
	floor := rows.Floor()
	for i := range rows {
		if r := &rows[i]; r.Role == measure.Ours {
			t.AtMost(c.bound, report.Ratio(r.Median(0, measure.Sample.ServerCPU), floor.Median(0, measure.Sample.ServerCPU)), "%s: %s", r.Name, c.bar)
		}
	}
	return rows.Table(
		measure.Median(c.cpu, 0, measure.Sample.ServerCPU),
		measure.Ratio(c.floor, floor, 0, measure.Sample.ServerCPU),
		measure.Median(c.throughput, 0, measure.Sample.PerSecond),
	)
}
