package serverbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
)

// consistencyPlan is how much is measured.
type consistencyPlan struct {
	// lasts is how long each mode is measured, and warm how long it is asked before.
	// What the keys are admitted counts from the first request.
	lasts, warm time.Duration
	// perSecond is the load, over so many connections.
	perSecond   float64
	connections int
	// tail is how many keys there are besides the busy ones.
	tail int
}

const (
	// busy is how many keys are asked about often: each by one request of perBusy.
	busy    = 4
	perBusy = 8
	nodes   = 2
)

// limit is what half of the requests for a busy key exceed.
func (p *consistencyPlan) limit() int64 { return int64(p.perSecond / perBusy / 2) }

// mode is a way for a rule to count.
type mode struct{ name, yaml string }

// modes are compared with the first.
var modes = []mode{
	{"strict", ""},
	{"strict, deny cache", "deny_cache: on"},
	{"leased", "consistency: leased"},
	{"leased, deny cache", "consistency: leased, deny_cache: on"},
	{"async", "consistency: async"},
}

// tally is what one mode has done, and what was admitted of what the limit of each busy key
// allows.
type tally struct {
	mode mode
	measure.Sample
	shares []float64
}

// denied is the share of the requests that was denied.
func (t *tally) denied() float64 { return float64(t.Done-t.Admitted) / float64(t.Done) }

// over is by how much a busy key was admitted more than its limit allows, at worst.
func (t *tally) over() float64 { return max(0, slices.Max(t.shares)-1) }

// early is how much less the busy keys were admitted than their limits allow, all together.
func (t *tally) early() float64 {
	sum := 0.0
	for _, share := range t.shares {
		sum += share
	}
	return max(0, 1-sum/float64(len(t.shares)))
}

// Consistency measures what a rule's consistency and the deny cache save, and how exact they leave
// it: two servers over one Redis are asked about a few keys often and about many now and then. An
// eighth of the requests is for each of four keys, the rest is spread over a long tail. Once the
// limit is far beyond what anybody asks for, and once it is half of what the four keys ask for. What
// both servers admit together is compared with what a token bucket may admit: its burst, and what it
// refills from the first request to the last answer. A run for the record takes about three
// minutes.
func Consistency(ctx context.Context, w *measure.Work) (*report.Text, error) {
	plan := measure.Choose(w, consistencyPlan{12 * time.Second, 2 * time.Second, 6000, 64, 20_000},
		consistencyPlan{2 * time.Second, time.Second, 1000, 16, 1000})
	binary, err := w.Server(ctx)
	if err != nil {
		return nil, err
	}
	var within, beyond []tally
	for _, m := range modes {
		for _, to := range []struct {
			what    string
			limit   int64
			tallies *[]tally
		}{{"within the limit", int64(plan.perSecond) * 10, &within}, {"beyond the limit", plan.limit(), &beyond}} {
			w.Say("%s, %s", m.name, to.what)
			r, err := plan.measure(ctx, w, m, to.limit, binary)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", m.name, to.what, err)
			}
			*to.tallies = append(*to.tallies, r)
		}
	}
	return consistencyText(plan, within, beyond), nil
}

func consistencyText(plan consistencyPlan, within, beyond []tally) *report.Text {
	t := new(report.Text)
	t.Say("%d servers, one Redis, POST /v1/check: %s requests a second in an open loop over %d connections for %v; 1/%d of them for each of %d keys, the others for %s keys. ",
		nodes, report.Number(plan.perSecond), plan.connections, plan.lasts, perBusy, busy, report.Number(float64(plan.tail)))
	t.Say("Times are those of the whole request, from when it was due.\n\n**Within the limit**: every request is admitted.\n\n")
	table := report.Table{Columns: []string{"", "script calls a decision", "Redis's CPU a decision, µs", "median, ms", "99 %, ms", "99.9 %, ms"}}
	for _, r := range within {
		table.Add(r.mode.name, report.Number(r.CallsEach()), report.Number(r.ServerCPU()),
			report.Number(medianMS(r.Sample)), report.Number(p99MS(r.Sample)), report.Number(p999MS(r.Sample)))
	}
	t.Say("%s\n**Beyond the limit**: %d per second for each key and twice as many at once, and the %d keys ask for twice as much.\n\n", &table, plan.limit(), busy)
	table = report.Table{Columns: []string{"", "script calls a decision", "Redis's CPU a decision, µs", "median, ms", "99 %, ms", "denied", "admitted beyond the limit, at worst", "denied early"}}
	percent := func(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }
	for _, r := range beyond {
		table.Add(r.mode.name, report.Number(r.CallsEach()), report.Number(r.ServerCPU()), report.Number(medianMS(r.Sample)), report.Number(p99MS(r.Sample)),
			percent(r.denied()), percent(r.over()), percent(r.early()))
		bound := 0.0
		if r.mode.name == "async" {
			bound = 1
		}
		t.AtMost(bound, 100*r.over(), "%s: admitted beyond the limit, %%", r.mode.name)
	}
	t.Say("%s", &table)
	return t
}

// rules is the policy file with one rule: so many a second, and twice as many at once.
func (m mode) rules(limit int64) string {
	return fmt.Sprintf("rules:\n  - { name: %s, per: [api_key], limits: [%d per 1s burst %d], %s }\n", ruleName, limit, 2*limit, m.yaml)
}

func (p *consistencyPlan) measure(ctx context.Context, w *measure.Work, m mode, limit int64, binary string) (_ tally, err error) {
	file, err1 := w.Write("consistency.yaml", m.rules(limit))
	hashKey, err2 := w.Write("hash.key", "the same for all servers")
	if err := errors.Join(err1, err2, w.Redis.Flush(ctx)); err != nil {
		return tally{}, err
	}
	node := contender{name: "node", command: []string{
		binary, "serve", "--config", file, "--listen", "ADDR", "--store", w.Redis.URL(), "--store-timeout", "1s", "--hash-key-file", hashKey,
	}}
	_, processes, stop, err := start(ctx, slices.Repeat([]contender{node}, nodes))
	if err != nil {
		return tally{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	keys, c := newKeys(p.tail), new(counts)
	pace := pace{connections: p.connections, perSecond: p.perSecond}
	for _, process := range processes {
		pace.addrs = append(pace.addrs, process.Addr)
	}
	pace.request = func(i int) []byte { return keys.requests[keys.at(i)] }
	pace.read = func(i int, r *bufio.Reader) error { return c.read(keys.at(i), r) }
	began := time.Now()
	if _, err := pace.run(ctx, p.warm); err != nil {
		return tally{}, err
	}
	before := c.denied.Load()
	var seconds float64
	s, err := measure.Spending(ctx, w.Redis, func() (measure.Sample, error) {
		s, err := pace.run(ctx, p.lasts)
		seconds = time.Since(began).Seconds()
		return s, err
	})
	s.Admitted = s.Done - int(c.denied.Load()-before)
	r := tally{mode: m, Sample: s}
	for i := range c.admitted {
		r.shares = append(r.shares, float64(c.admitted[i].Load())/(float64(limit)*(2+seconds)))
	}
	return r, err
}

// keys are the requests, and which of them comes when.
type keys struct {
	requests [][]byte
	order    []int32
}

// newKeys writes the requests out beforehand: first those of the busy keys.
func newKeys(tail int) *keys {
	k := &keys{order: make([]int32, 1<<16), requests: checks(busy+tail, "/v1/check?status=true", func(key string) any {
		return map[string]any{"descriptor": map[string]string{"api_key": key}}
	})}
	r := rand.New(rand.NewPCG(7, 11))
	for i := range k.order {
		if n := r.IntN(perBusy); n < busy {
			k.order[i] = int32(n)
		} else {
			k.order[i] = int32(busy + r.IntN(tail))
		}
	}
	return k
}

// at is the key of request i.
func (k *keys) at(i int) int { return int(k.order[i%len(k.order)]) }

// counts are what became of the requests.
type counts struct {
	denied   atomic.Int64
	admitted [busy]atomic.Int64 // of the busy keys
}

var errStatus = errors.New("the server neither admits nor denies")

func (c *counts) read(key int, r *bufio.Reader) error {
	status, err := readStatus(r)
	if err != nil {
		return err
	}
	switch status {
	case http.StatusOK:
		if key < busy {
			c.admitted[key].Add(1)
		}
	case http.StatusTooManyRequests:
		c.denied.Add(1)
	default:
		return fmt.Errorf("%w: it answers %d", errStatus, status)
	}
	return nil
}
