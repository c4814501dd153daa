package serverbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
	"github.com/headgate/headgate/bench/internal/workload"
)

// viewers is how many browsers look at the dashboard while it is measured.
const viewers = 5

// someDenied is a policy with a rule that admits and one that soon denies most.
const someDenied = policy + `  - name: narrow
    per: [api_key]
    limits: [10 per 1h]
`

// Dashboard measures how many decisions a server makes in a second while browsers look at its
// dashboard, beside the same server that knows nothing of keys, and what the browsers are told.
func Dashboard(ctx context.Context, w *measure.Work) (*report.Text, error) {
	binary, err := w.Server(ctx)
	if err != nil {
		return nil, err
	}
	file, err := w.Write("policy.yaml", someDenied)
	if err != nil {
		return nil, err
	}
	pages, err := servers.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	plan := serverPlan(w)
	asked := checks(plan.Keys, "/v1/check", byRule)
	for i := 0; i < plan.Keys; i += 8 {
		one := checkRequest{Checks: []check{{Rule: "narrow", Key: workload.Key(i), Cost: 1}}}
		asked[i] = checks(1, "/v1/check", func(string) any { return one })[0]
	}
	ask := overHTTP(plan, asked)
	v := &watched{page: "http://" + pages + "/api/stream?denials=true"}
	command := []string{binary, "serve", "--config", file, "--store", "memory", "--listen", "ADDR"}
	with, without := fmt.Sprintf("insight, and %d viewers of the dashboard", viewers), "without insight"
	rows, err := saturate(ctx, w, plan, []contender{
		{
			name: with, role: measure.Ours, command: append(command[:len(command):len(command)], "--dashboard-listen", pages), load: v.during(ask),
		},
		{
			name: without, role: measure.Floor, command: append(command[:len(command):len(command)], "--no-insight"), load: ask,
		},
	})
	if err != nil {
		return nil, err
	}
	t := new(report.Text)
	t.Say("POST /v1/check over %d keep-alive connections, saturated; %s keys, an eighth of the requests under a rule that denies nearly all of them; median of %d rounds of %v. The viewers and the load generator are on the same cores.\n\n",
		plan.Callers, report.Number(float64(plan.Keys)), plan.Rounds, plan.Slice)
	floor := rows.Named(without)
	t.Say("%s", rows.Table(
		measure.Median("decisions/s", 0, measure.Sample.PerSecond), measure.Over("÷ without", floor, 0, measure.Sample.PerSecond),
		measure.Median("server CPU a decision, µs", 0, measure.Sample.ServerCPU)))
	t.AtLeast(0.97, rows.Named(with).Over(floor, 0, measure.Sample.PerSecond), "decisions/s with %d viewers ÷ without insight", viewers)
	// Beside other work on the machine, throughput says little, and this says the same.
	t.AtMost(1/0.97, rows.Named(with).Over(floor, 0, measure.Sample.ServerCPU), "server CPU a decision with %d viewers ÷ without insight", viewers)
	t.AtMost(8, v.rate()/1000, "kB/s that a viewer is told")
	return t, nil
}

// watched counts what viewers of a stream are told.
type watched struct {
	page  string
	bytes atomic.Int64
	mu    sync.Mutex // guards time
	time  time.Duration
}

// rate is how many bytes a viewer is told in a second.
func (v *watched) rate() float64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return report.Ratio(float64(v.bytes.Load()), v.time.Seconds()*viewers)
}

// during has viewers look while the load is on.
func (v *watched) during(load load) load {
	return func(ctx context.Context, addr string, d time.Duration) (measure.Sample, error) {
		looking, stop := context.WithCancel(ctx)
		failed := make(chan error, viewers)
		began := time.Now()
		for range viewers {
			go func() { failed <- v.look(looking) }()
		}
		s, err := load(ctx, addr, d)
		stop()
		v.mu.Lock()
		v.time += time.Since(began)
		v.mu.Unlock()
		for range viewers {
			err = errors.Join(err, <-failed)
		}
		return s, err
	}
}

// look reads the stream until the context ends.
func (v *watched) look(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.page, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil // The load was over before the stream had begun.
		}
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("serverbench: the dashboard answers with status %d", response.StatusCode)
	}
	n, err := io.Copy(io.Discard, response.Body)
	if v.bytes.Add(n); ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serverbench: the stream of a viewer has ended: %w", errors.Join(err, io.ErrUnexpectedEOF))
}
