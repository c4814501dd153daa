package consistencybench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/bench/internal/servicebench"
	"github.com/headgate/headgate/bench/internal/workload"
)

// Plan is how much is measured.
type Plan struct {
	// For is how long each mode is measured, and Warm how long it is asked before.
	// What the keys are admitted counts from the first request.
	For, Warm time.Duration
	// PerSecond is the load, over so many Connections.
	PerSecond   float64
	Connections int
	// Tail is how many keys there are besides the busy ones.
	Tail int
	// Progress is told what is being measured; nil if nobody wants to know.
	Progress func(format string, args ...any)
}

// Full is the plan of a run for the record: about three minutes.
func Full() Plan {
	return Plan{For: 12 * time.Second, Warm: 2 * time.Second, PerSecond: 6000, Connections: 64, Tail: 20_000}
}

// Short is the plan of a run that shows whether everything works.
func Short() Plan {
	return Plan{For: 2 * time.Second, Warm: time.Second, PerSecond: 1000, Connections: 16, Tail: 1000}
}

const (
	// busy is how many keys are asked about often: each by one request of perBusy.
	busy    = 4
	perBusy = 8
	nodes   = 2
)

// Mode is a way for a rule to count.
type Mode struct {
	Name string
	yaml string
}

// modes are those that are held against the first.
var modes = []Mode{
	{"strict", ""},
	{"strict, deny cache", "deny_cache: on"},
	{"leased", "consistency: leased"},
	{"leased, deny cache", "consistency: leased, deny_cache: on"},
	{"async", "consistency: async"},
}

// Result is what one mode has done.
type Result struct {
	Mode Mode
	// Calls are those of Redis's scripts for each decision, and Redis the CPU time of
	// its commands for each, in microseconds.
	Calls, Redis float64
	// Times are how long decisions took, in order.
	Times []time.Duration
	// Denied is the share of the requests that was denied.
	Denied float64
	// Admitted is, for each busy key, what was admitted of what its limit allows.
	Admitted []float64
}

// Outcome is what a run has measured: with a limit that nobody reaches, and with one
// that the busy keys exceed.
type Outcome struct {
	Plan           Plan
	Limit          int64 // the second
	Within, Beyond []Result
}

// Run measures all modes with the server built from the module at source into dir.
func Run(ctx context.Context, plan Plan, redis *redisbench.Server, source, dir string) (*Outcome, error) {
	binary, err := servicebench.Build(ctx, source, dir)
	if err != nil {
		return nil, fmt.Errorf("consistencybench: %w", err)
	}
	o := &Outcome{Plan: plan, Limit: int64(plan.PerSecond / perBusy / 2)}
	for _, m := range modes {
		for _, to := range []struct {
			what    string
			limit   int64
			results *[]Result
		}{{"within the limit", int64(plan.PerSecond) * 10, &o.Within}, {"beyond the limit", o.Limit, &o.Beyond}} {
			if plan.Progress != nil {
				plan.Progress("consistency: %s, %s", m.Name, to.what)
			}
			r, err := measure(ctx, plan, m, to.limit, redis, binary, dir)
			if err != nil {
				return nil, fmt.Errorf("consistencybench: %s, %s: %w", m.Name, to.what, err)
			}
			*to.results = append(*to.results, r)
		}
	}
	return o, nil
}

// policy is the file with one rule: so many a second, and twice as many at once.
func policy(m Mode, limit int64) string {
	return fmt.Sprintf("rules:\n  - { name: %s, per: [api_key], limits: [%d per 1s burst %d], %s }\n", servicebench.RuleName, limit, 2*limit, m.yaml)
}

func measure(ctx context.Context, plan Plan, m Mode, limit int64, redis *redisbench.Server, binary, dir string) (_ Result, err error) {
	if err := redis.Flush(ctx); err != nil {
		return Result{}, err
	}
	file, hashKey := filepath.Join(dir, "consistency.yaml"), filepath.Join(dir, "hash.key")
	err = errors.Join(os.WriteFile(file, []byte(policy(m, limit)), 0o600), os.WriteFile(hashKey, []byte("the same for all servers"), 0o600))
	if err != nil {
		return Result{}, err
	}
	var addrs []string
	for range nodes {
		addr, stop, err := servicebench.Start(ctx, []string{
			binary, "serve", "--config", file, "--listen", "ADDR",
			"--store", "redis://" + redis.Addr, "--store-timeout", "1s", "--hash-key-file", hashKey,
		})
		if err != nil {
			return Result{}, err
		}
		defer func() { _ = stop() }() // What it has to say was said when it was measured.
		addrs = append(addrs, addr)
	}
	keys := newKeys(plan)
	c := &counts{}
	pace := servicebench.Pace{Addrs: addrs, Connections: plan.Connections, PerSecond: plan.PerSecond}
	pace.Request = func(i int) []byte { return keys.requests[keys.at(i)] }
	pace.Read = func(i int, r *bufio.Reader) error { return c.read(keys.at(i), r) }
	began := time.Now()
	pace.For = plan.Warm
	if _, err := pace.Run(ctx); err != nil {
		return Result{}, err
	}
	before, err := redis.Usage(ctx)
	if err != nil {
		return Result{}, err
	}
	c.decisions.Store(0)
	c.denied.Store(0)
	pace.For = plan.For
	took, err := pace.Run(ctx)
	if err != nil {
		return Result{}, err
	}
	seconds := time.Since(began).Seconds()
	after, err := redis.Usage(ctx)
	if err != nil {
		return Result{}, err
	}
	slices.Sort(took)
	spent, n := after.Sub(before), float64(c.decisions.Load())
	r := Result{
		Mode: m, Times: took, Calls: float64(spent.Calls) / n,
		Redis: float64(spent.CPU.Microseconds()) / n, Denied: float64(c.denied.Load()) / n,
	}
	for i := range c.admitted {
		r.Admitted = append(r.Admitted, float64(c.admitted[i].Load())/(float64(limit)*(2+seconds)))
	}
	return r, nil
}

// keys are the requests, and which of them comes when.
type keys struct {
	requests [][]byte
	order    []int32
}

// newKeys writes the requests out beforehand: first those of the busy keys.
func newKeys(plan Plan) *keys {
	k := &keys{requests: make([][]byte, busy+plan.Tail), order: make([]int32, 1<<16)}
	for i := range k.requests {
		body := fmt.Sprintf(`{"descriptor":{"api_key":%q}}`, workload.Key(i))
		k.requests[i] = fmt.Appendf(nil, "POST /v1/check?status=true HTTP/1.1\r\nHost: headgate\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	r := rand.New(rand.NewPCG(7, 11))
	for i := range k.order {
		if n := r.IntN(perBusy); n < busy {
			k.order[i] = int32(n)
		} else {
			k.order[i] = int32(busy + r.IntN(plan.Tail))
		}
	}
	return k
}

// at is the key of request i.
func (k *keys) at(i int) int { return int(k.order[i%len(k.order)]) }

// counts are what became of the requests.
type counts struct {
	decisions, denied atomic.Int64
	admitted          [busy]atomic.Int64
}

var errStatus = errors.New("the server neither admits nor denies")

func (c *counts) read(key int, r *bufio.Reader) error {
	status, err := servicebench.ReadStatus(r)
	if err != nil {
		return err
	}
	c.decisions.Add(1)
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
