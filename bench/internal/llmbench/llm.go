// Package llmbench compares the gateway for language models with a plain proxy, and with the proxy of
// LiteLLM.
package llmbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
	"github.com/headgate/headgate/internal/llm/llmtest"
)

// plan is how much is measured. Keys are the calls that are made at once where the cap is.
type plan struct {
	measure.Plan
	// fast and slow are calls a second: what the bars are about, and what all can bear.
	fast, slow float64
	// open is how many streams are open while memory is measured.
	open int
}

// The conditions: calls at the fast and at the slow rate, streams at once, streams that stay open, and
// calls at once where the budget has room for few.
const fast, slow, streams, memory, budget = 0, 1, 2, 3, 4

const (
	words    = 8    // of an answer
	pace     = 5    // milliseconds between two words
	long     = 300  // words of an answer where streams are measured
	priceIn  = 0.25 // for a million tokens
	priceOut = 2.0
	capWords = 50 // of an answer where the cap is
	capCalls = 40 // that the cap has room for, by what they truly cost
)

// limits have room for everything but the budget of key-of-cap.
const limits = `subjects:
  by: api_key
  table:
    key-of-free: { team: free }
    key-of-cap: { team: cap }
ignore:
  - { code: HG013, reason: the keys are those of a benchmark }
models:
  - { model: m, input: %g, output: %g, max_input: 400000, max_output: 2000 }
rules:
  - { name: calls, per: [team], limits: [100_000_000 per 1m] }
  - { name: tokens, per: [team, model], counts: tokens, limits: [1_000_000_000 per 1m] }
  - { name: budget, match: { team: cap }, per: [team], counts: money, algorithm: fixed_window, limits: [%d per calendar month] }
  - { name: plenty, match: { team: free }, per: [team], counts: money, algorithm: fixed_window, limits: [1_000_000_000 per calendar month] }
`

const upstreams = `upstreams:
  - name: provider
    targets: ["%s"]
    llm: { api: compatible }
routes:
  - { match: /v1/, upstream: provider }
`

// liteLLM is a configuration of LiteLLM's proxy. Its budget is that of the provider: budgets of keys
// need a database. Settings are those that its documents ask for in production, where they matter here.
const liteLLM = `model_list:
  - model_name: m
    litellm_params:
      model: openai/m
      api_base: %s/v1
      api_key: none
      input_cost_per_token: %g
      output_cost_per_token: %g
router_settings:
  num_retries: 0
  provider_budget_config:
    openai: { budget_limit: %g, time_period: 30d }
litellm_settings:
  set_verbose: false
  json_logs: true
  request_timeout: 600
general_settings:
  master_key: sk-free
`

// contender is one way to the provider.
type contender struct {
	// command starts a proxy whose budget has room for so much money, in millionths; without one,
	// the provider is asked itself.
	command func(upstream string, budget int64) ([]string, error)
	// key is what clients show, and capped that of the client with the budget.
	key, capped string
}

const (
	direct    = "no proxy"
	proxyName = "httputil.ReverseProxy"
	ours      = "Headgate gateway"
	lite      = "LiteLLM proxy"
)

// Run measures what the gateway adds to calls of a language model, what a streamed event and an open
// stream cost it, and whether a budget holds. A run for the record takes about four minutes.
func Run(ctx context.Context, w *measure.Work) (_ *report.Text, err error) {
	p := measure.Choose(w, plan{measure.Plan{Rounds: 3, Slice: 2500 * time.Millisecond, Callers: 32, Keys: 1000}, 500, 20, 1000},
		plan{measure.Plan{Rounds: 1, Slice: time.Second, Callers: 8, Keys: 100}, 50, 5, 50})
	provider := new(llmtest.Provider)
	upstream, stop, err := serve(ctx, provider)
	if err != nil {
		return nil, err
	}
	defer stop()
	contenders, err := field(ctx, w)
	if err != nil {
		return nil, err
	}
	rows := measure.Rows{
		{Name: direct},
		{Name: proxyName, Role: measure.Floor},
		{Name: ours, Role: measure.Ours, Note: "limits of calls, tokens and money, in memory, in one decision"},
		{Name: lite, Note: "one process, and the budget of a provider, which needs no database"},
	}
	processes := make(map[string]*servers.Process)
	defer func() {
		for _, one := range processes {
			err = errors.Join(err, one.Stop())
		}
	}()
	addrs := map[string]string{direct: upstream}
	for _, r := range rows[1:] {
		one, err := start(ctx, contenders[r.Name], upstream, 1<<29)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
		processes[r.Name], addrs[r.Name] = one, one.Addr
	}
	gaps := make(map[string][]float64)
	err = p.Turns(ctx, w, rows, []int{slow, fast, streams}, func(_, condition, i int) (s measure.Sample, err error) {
		name := rows[i].Name
		if condition == fast && name == lite {
			return measure.Sample{}, nil // This many calls a second are too many for it.
		}
		a := asker{url: "http://" + addrs[name] + "/v1/chat/completions", key: contenders[name].key, client: client()}
		defer a.client.CloseIdleConnections()
		measured := func() error {
			switch condition {
			case streams:
				s, err = a.streams(ctx, &p)
			case fast:
				s, err = a.paced(ctx, p.fast, p.Slice)
			case slow:
				if s, err = a.paced(ctx, p.slow, p.Slice); err == nil {
					gaps[name] = append(gaps[name], a.gap())
				}
			}
			return err
		}
		if _, err := a.paced(ctx, p.slow, p.Slice/4); err != nil { // what is new
			return s, err
		}
		if processes[name] == nil {
			return s, measured()
		}
		before, err1 := processes[name].CPU()
		err2 := measured()
		after, err3 := processes[name].CPU()
		s.Server = after - before
		return s, errors.Join(err1, err2, err3)
	})
	if err != nil {
		return nil, err
	}
	grown := make(map[string]float64)
	for _, r := range rows[1:] {
		w.Say("%d open streams: %s", p.open, r.Name)
		a := asker{url: "http://" + addrs[r.Name] + "/v1/chat/completions", key: contenders[r.Name].key, client: client()}
		size, err := a.open(ctx, p.open, processes[r.Name])
		switch {
		case err == nil:
			grown[r.Name] = size
		case r.Name != lite: // It may not open so many within a minute.
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	spent := make(map[string]overspent)
	for _, r := range rows[2:] {
		w.Say("%d calls at once at a cap: %s", p.Keys, r.Name)
		if spent[r.Name], err = capped(ctx, &p, contenders[r.Name]); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	return written(&p, rows, gaps, grown, spent), nil
}

func written(p *plan, rows measure.Rows, gaps map[string][]float64, grown map[string]float64, spent map[string]overspent) *report.Text {
	t := new(report.Text)
	t.Say("Streamed calls, %d words each, one every %d ms, from a provider in the benchmark's process; median of %d rounds of %v. Times to the first byte count from when a call was due.\n\n", words, pace, p.Rounds, p.Slice)
	table := &report.Table{Columns: []string{
		fmt.Sprintf("%g calls a second", p.slow), "first byte, median, ms", "99 %, ms", "between two words, 99 %, ms", "CPU a call, ms",
		fmt.Sprintf("%g a second: first byte, 99 %%, ms", p.fast), "CPU a streamed word, µs", fmt.Sprintf("memory for %d open streams, MiB", p.open),
	}}
	cell := func(f float64) string {
		if f != f || f == 0 {
			return "–"
		}
		return report.Number(f)
	}
	for i := range rows {
		r := &rows[i]
		busy, chunk := 0.0, 0.0
		if r.Name != lite {
			busy = r.Median(fast, measure.Millis(measure.Sample.P99))
		}
		if r.Name != direct {
			chunk = r.Median(streams, measure.Sample.ServerCPU)
		}
		table.Add(r.Name, cell(r.Median(slow, measure.Millis(measure.Sample.P50))), cell(r.Median(slow, measure.Millis(measure.Sample.P99))), cell(report.Median(gaps[r.Name])),
			cell(r.Median(slow, measure.Millis(measure.Sample.ServerCPU))), cell(busy), cell(chunk), cell(grown[r.Name]))
	}
	t.Say("%s\n", table)
	t.Say("%s calls at once, each of which declares and uses %d words, where the money has room for %d; what the provider has truly counted.\n\n", report.Number(float64(p.Keys)), capWords, capCalls)
	table = &report.Table{Columns: []string{"a cap", "spent ÷ cap", "calls answered"}}
	for _, r := range rows[2:] {
		table.Add(r.Name, report.Times(spent[r.Name].share), report.Number(float64(spent[r.Name].answered)))
	}
	t.Say("%s\n", table)
	rows.Notes(t)
	gateway, proxy := rows.Named(ours), rows.Named(proxyName)
	p99 := measure.Millis(measure.Sample.P99)
	t.AtMost(1, gateway.Median(fast, p99)-proxy.Median(fast, p99), "%s: added to the first byte at %g calls a second, 99 %%, ms", ours, p.fast)
	t.AtMost(1.5, gateway.Over(proxy, streams, measure.Sample.ServerCPU), "%s: CPU a streamed word ÷ ReverseProxy", ours)
	t.AtMost(64, grown[ours]-grown[proxyName], "%s: memory for %d open streams, more than ReverseProxy, MiB", ours, p.open)
	t.AtMost(1, spent[ours].share, "%s: spent ÷ cap", ours)
	return t
}

// serve serves the provider until stop is called.
func serve(ctx context.Context, provider http.Handler) (addr string, stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: provider, ReadHeaderTimeout: 10 * time.Second}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(l) }) // Close ends it
	return l.Addr().String(), func() { _ = server.Close(); done.Wait() }, nil
}

// field is who is measured.
func field(ctx context.Context, w *measure.Work) (map[string]contender, error) {
	peers, err := filepath.Abs(filepath.Join("..", "bin", "tools", "litellm-1"))
	if err == nil {
		if _, err = os.Stat(filepath.Join(peers, "litellm")); err != nil {
			err = fmt.Errorf("%w: bin/tools/litellm-1, which scripts/install-test-programs --bench installs", exec.ErrNotFound)
		}
	}
	if err != nil {
		return nil, err
	}
	binary, err := w.Server(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]contender{
		direct: {key: "key-of-free"},
		proxyName: {
			key: "key-of-free",
			command: func(upstream string, _ int64) ([]string, error) {
				return []string{w.Program, "echo", "-listen", "ADDR", "-handler", "proxy", "-upstream", "http://" + upstream}, nil
			},
		},
		ours: {
			key: "key-of-free", capped: "key-of-cap",
			command: func(upstream string, budget int64) ([]string, error) {
				policy, err1 := w.Write("llm.yml", fmt.Sprintf(limits, priceIn, priceOut, budget))
				gateway, err2 := w.Write("gateway.yml", fmt.Sprintf(upstreams, "http://"+upstream))
				return []string{binary, "gateway", "--listen", "ADDR", "--admin-listen", "127.0.0.1:0", "--gateway", gateway, "--config", policy}, errors.Join(err1, err2)
			},
		},
		lite: {
			key: "sk-free", capped: "sk-free",
			command: func(upstream string, budget int64) ([]string, error) {
				file, err := w.Write("litellm.yml", fmt.Sprintf(liteLLM, "http://"+upstream, priceIn/1e6, priceOut/1e6, float64(budget)/1e6))
				return []string{
					"env", "PYTHONPATH=" + peers, "PYTHONDONTWRITEBYTECODE=1", "LITELLM_MODE=PRODUCTION", "LITELLM_LOG=ERROR", "LITELLM_LOCAL_MODEL_COST_MAP=True",
					"python3", "-c", "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); from litellm import run_server; run_server()", "--config", file, "--host", "127.0.0.1", "--port", "PORT", "--telemetry", "False",
				}, err
			},
		},
	}, nil
}

func start(ctx context.Context, c contender, upstream string, budget int64) (*servers.Process, error) {
	command, err := c.command(upstream, budget)
	if err != nil {
		return nil, err
	}
	return servers.Start(ctx, command)
}

func client() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true}}
}

// asker makes calls.
type asker struct {
	url, key string
	client   *http.Client

	mu   sync.Mutex // guards gaps
	gaps []float64  // between two words, in milliseconds
}

// call makes one, and hands each word to heard when it has come. Any status but 200 is an error.
func (a *asker) call(ctx context.Context, stream bool, how string, most int, heard func() error) error {
	body := fmt.Sprintf(`{"model":"m","stream":%v,"user":%q,"max_tokens":%d,"messages":[{"role":"user","content":"Say something about limits."}]}`, stream, how, most)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+a.key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := a.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 500)) // It is for a person.
		return &refused{answer.StatusCode, string(text)}
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: {") {
			if err := heard(); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// refused is an answer without words.
type refused struct {
	status int
	text   string
}

func (e *refused) Error() string { return fmt.Sprintf("the answer is %d: %s", e.status, e.text) }

// paced makes calls when they are due, whether others have ended or not.
func (a *asker) paced(ctx context.Context, perSecond float64, d time.Duration) (s measure.Sample, err error) {
	n := max(1, int(perSecond*d.Seconds()))
	took := make([]time.Duration, n)
	began := time.Now()
	a.gaps = nil
	err = measure.Each(ctx, n, func(ctx context.Context, i int) error {
		due := began.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
		time.Sleep(time.Until(due))
		var last time.Time
		var gaps []float64
		err := a.call(ctx, true, fmt.Sprintf("pause=%dms", pace), words, func() error {
			now := time.Now()
			if last.IsZero() {
				took[i] = now.Sub(due)
			} else {
				gaps = append(gaps, now.Sub(last).Seconds()*1000)
			}
			last = now
			return nil
		})
		a.mu.Lock()
		defer a.mu.Unlock()
		a.gaps = append(a.gaps, gaps...)
		return err
	})
	if err != nil {
		return s, err
	}
	s.Elapsed = time.Since(began)
	return s, s.Record(took)
}

// gap is the time that 99 % of the words did not need after the one before, in milliseconds.
func (a *asker) gap() float64 { return report.Quantile(a.gaps, 0.99) }

// streams reads as many long streams as there are callers, and counts their words.
func (a *asker) streams(ctx context.Context, p *plan) (s measure.Sample, err error) {
	var heard atomic.Int64
	began := time.Now()
	err = measure.Each(ctx, p.Callers, func(ctx context.Context, _ int) error {
		return a.call(ctx, true, "pause=1ms", long, func() error { heard.Add(1); return nil })
	})
	s.Done, s.Elapsed, s.Took = int(heard.Load()), time.Since(began), measure.Histogram()
	return s, err
}

// open opens so many streams, and returns by how many MiB the proxy grows by them.
func (a *asker) open(ctx context.Context, n int, proxy *servers.Process) (float64, error) {
	before, err := proxy.Memory()
	if err != nil {
		return 0, err
	}
	calls, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var begun atomic.Int64
	var after int64
	var measured error
	err = measure.Each(ctx, n, func(context.Context, int) error {
		first := true
		err := a.call(calls, true, "pause=3s", 100, func() error {
			if first && int(begun.Add(1)) == n {
				after, measured = proxy.Memory()
				cancel()
			}
			first = false
			return nil
		})
		if calls.Err() != nil {
			err = nil // All were open, or the minute is over.
		}
		return err
	})
	if int(begun.Load()) < n && err == nil {
		err = fmt.Errorf("%d of %d streams were open after a minute", begun.Load(), n)
	}
	return float64(after-before) / (1 << 20), errors.Join(err, measured)
}

// overspent is what came of many calls at a cap.
type overspent struct {
	share    float64 // what was truly spent, of the cap
	answered int
}

// capped makes many calls at once through a new proxy whose budget has room for few. The provider is
// new too: a proxy that was measured before may still read answers that nobody waits for.
func capped(ctx context.Context, p *plan, c contender) (o overspent, err error) {
	provider := new(llmtest.Provider)
	upstream, stop, err := serve(ctx, provider)
	if err != nil {
		return o, err
	}
	defer stop()
	const each = 40*priceIn + capWords*priceOut // by the provider's count of a call's tokens
	budget := int64(each * capCalls)
	proxy, err := start(ctx, c, upstream, budget)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, proxy.Stop()) }()
	a := asker{url: "http://" + proxy.Addr + "/v1/chat/completions", key: c.capped, client: client()}
	defer a.client.CloseIdleConnections()
	var answered atomic.Int64
	err = measure.Each(ctx, p.Keys, func(ctx context.Context, _ int) error {
		err := a.call(ctx, false, "pause=1ms", capWords, func() error { return nil })
		if no, ok := errors.AsType[*refused](err); ok && no.status == http.StatusTooManyRequests {
			return nil
		}
		if err == nil {
			answered.Add(1)
		}
		return err
	})
	spent := float64(provider.Input.Load())*priceIn + float64(provider.Output.Load())*priceOut
	return overspent{spent / float64(budget), int(answered.Load())}, err
}
