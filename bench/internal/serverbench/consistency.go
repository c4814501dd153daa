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
	// rounds is how often all modes are measured, one after the other: the machine may stall
	// during one of them. Lasts is how long a mode is measured each time, and warm how long it
	// is asked before. What the keys are admitted counts from the first request.
	rounds      int
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

// The conditions: a limit that nobody reaches, and one that the busy keys exceed.
const within, beyond = 0, 1

// shares are, for each busy key, what one mode has admitted of what the limit allows.
type shares [busy]float64

// over is by how much a busy key was admitted more than its limit allows, at worst.
func (s *shares) over() float64 { return max(0, slices.Max(s[:])-1) }

// worst is the largest of what is said of the rounds of a mode.
func worst(rounds []*shares, of func(*shares) float64) float64 {
	most := 0.0
	for _, s := range rounds {
		most = max(most, of(s))
	}
	return most
}

// early is how much less the busy keys were admitted than their limits allow, all together.
func (s *shares) early() float64 {
	sum := 0.0
	for _, share := range s {
		sum += share
	}
	return max(0, 1-sum/busy)
}

// Consistency measures what a rule's consistency and the deny cache save, and how exact they leave
// it: two servers over one Redis are asked about a few keys often and about many now and then. An
// eighth of the requests is for each of four keys, the rest is spread over a long tail. Once the
// limit is far beyond what anybody asks for, and once it is half of what the four keys ask for. What
// both servers admit together is compared with what a token bucket may admit: its burst, and what it
// refills from the first request to the last answer. A run for the record takes about four
// minutes.
func Consistency(ctx context.Context, w *measure.Work) (*report.Text, error) {
	plan := measure.Choose(w, consistencyPlan{3, 5 * time.Second, 2 * time.Second, 6000, 64, 20_000},
		consistencyPlan{1, 2 * time.Second, time.Second, 1000, 16, 1000})
	binary, err := w.Server(ctx)
	if err != nil {
		return nil, err
	}
	rows, exceeded := make(measure.Rows, len(modes)), make(map[string][]*shares)
	for round := range plan.rounds {
		for i, m := range modes {
			rows[i].Name = m.name
			for condition, limit := range []int64{within: int64(plan.perSecond) * 10, beyond: plan.limit()} {
				w.Say("%s, %d a second, round %d", m.name, limit, round+1)
				s, admitted, err := plan.measure(ctx, w, m, limit, binary)
				if err != nil {
					return nil, fmt.Errorf("%s, %d a second: %w", m.name, limit, err)
				}
				rows[i].Add(condition, s)
				if condition == beyond {
					exceeded[m.name] = append(exceeded[m.name], admitted)
				}
			}
		}
	}
	return consistencyText(plan, rows, exceeded), nil
}

func consistencyText(plan consistencyPlan, rows measure.Rows, exceeded map[string][]*shares) *report.Text {
	t := new(report.Text)
	t.Say("%d servers, one Redis, POST /v1/check: %s requests a second in an open loop over %d connections; the median of %d rounds of %v; 1/%d of them for each of %d keys, the others for %s keys. ",
		nodes, report.Number(plan.perSecond), plan.connections, plan.rounds, plan.lasts, perBusy, busy, report.Number(float64(plan.tail)))
	columns := func(condition int, more ...measure.Column) []measure.Column {
		return append([]measure.Column{
			measure.Median("script calls a decision", condition, measure.Sample.CallsEach), measure.Median("Redis's CPU a decision, µs", condition, measure.Sample.ServerCPU),
			measure.Median("median, ms", condition, medianMS), measure.Median("99 %, ms", condition, p99MS),
		}, more...)
	}
	percent := func(name string, share func(r *measure.Row) float64) measure.Column {
		return measure.Column{Name: name, Cell: func(r *measure.Row) string { return fmt.Sprintf("%.2f %%", 100*share(r)) }}
	}
	t.Say("Times are those of the whole request, from when it was due.\n\n**Within the limit**: every request is admitted.\n\n%s",
		rows.Table(columns(within, measure.Median("99.9 %, ms", within, p999MS))...))
	t.Say("\n**Beyond the limit**: %d per second for each key and twice as many at once, and the %d keys ask for twice as much.\n\n%s", plan.limit(), busy, rows.Table(columns(beyond,
		percent("denied", func(r *measure.Row) float64 { return 1 - r.Median(beyond, measure.Sample.AdmittedShare) }),
		percent("admitted beyond the limit, at worst", func(r *measure.Row) float64 { return worst(exceeded[r.Name], (*shares).over) }),
		percent("denied early", func(r *measure.Row) float64 { return worst(exceeded[r.Name], (*shares).early) }))...))
	for _, r := range rows {
		bound := 0.0
		if r.Name == "async" {
			bound = 1
		}
		t.AtMost(bound, 100*worst(exceeded[r.Name], (*shares).over), "%s: admitted beyond the limit, %%", r.Name)
	}
	return t
}

// rules is the policy file with one rule: so many a second, and twice as many at once.
func (m mode) rules(limit int64) string {
	return fmt.Sprintf("rules:\n  - { name: %s, per: [api_key], limits: [%d per 1s burst %d], %s }\n", ruleName, limit, 2*limit, m.yaml)
}

func (p *consistencyPlan) measure(ctx context.Context, w *measure.Work, m mode, limit int64, binary string) (s measure.Sample, admitted *shares, err error) {
	file, err1 := w.Write("consistency.yaml", m.rules(limit))
	hashKey, err2 := w.Write("hash.key", "the same for all servers")
	if err := errors.Join(err1, err2, w.Redis.Flush(ctx)); err != nil {
		return s, nil, err
	}
	node := contender{name: "node", command: []string{
		binary, "serve", "--config", file, "--listen", "ADDR", "--store", w.Redis.URL(), "--store-timeout", "1s", "--hash-key-file", hashKey,
	}}
	_, processes, stop, err := start(ctx, slices.Repeat([]contender{node}, nodes))
	if err != nil {
		return s, nil, err
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
		return s, nil, err
	}
	before := c.denied.Load()
	var seconds float64
	s, err = measure.Spending(ctx, w.Redis, func() (measure.Sample, error) {
		s, err := pace.run(ctx, p.lasts)
		seconds = time.Since(began).Seconds()
		return s, err
	})
	s.Admitted, admitted = s.Done-int(c.denied.Load()-before), new(shares)
	for i := range admitted {
		admitted[i] = float64(c.admitted[i].Load()) / (float64(limit) * (2 + seconds))
	}
	return s, admitted, err
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
