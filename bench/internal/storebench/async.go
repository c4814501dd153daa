package storebench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/redis"
)

// asyncPlan adds how exact the layer is.
type asyncPlan struct {
	measure.Plan
	// nodes are the numbers of nodes that share a limit, length is for how long they
	// are asked, and rate how many units a second the limit is.
	nodes  []int
	length time.Duration
	rate   int64
}

// Async measures what counting asynchronously saves, for one hot key and for keys that nobody has
// seen, and what it costs in exactness: what several nodes admit is compared with the limit at
// every instant, and with what a strict limiter admits of the same requests. A run for the record
// takes about four minutes.
func Async(ctx context.Context, w *measure.Work) (*report.Text, error) {
	plan := measure.Choose(w, asyncPlan{
		measure.Plan{Rounds: 15, Slice: 250 * time.Millisecond, Callers: 64},
		[]int{1, 2, 4, 8, 16},
		7 * time.Second, 2000,
	}, asyncPlan{
		measure.Plan{Rounds: 2, Slice: 200 * time.Millisecond, Callers: 64},
		[]int{1, 16},
		time.Second, 2000,
	})
	rows, err := asynchronously(ctx, w, plan.Plan)
	if err != nil {
		return nil, err
	}
	exact, err := compareExact(ctx, w, plan)
	if err != nil {
		return nil, err
	}
	return asyncText(w.Redis.Version, plan, rows, exact), nil
}

func asyncText(version string, plan asyncPlan, rows measure.Rows, exact []exactness) *report.Text {
	t := new(report.Text)
	t.Say("%s. %d callers, closed loop; median of %d rounds of %v. The hot key is one that is always admitted, cold keys are keys that nobody has seen.\n\n",
		version, plan.Callers, plan.Rounds, plan.Slice)
	t.Say("%s", layered(rows, "hot key", "cold keys"))
	t.Say("\nNodes that share one key, and are asked together for %d times what its limit admits, for %v; a report every %v, a part of 1/%.0f. \"Too many\" is the most by which the limit was ever exceeded: "+
		"of a window's count, or of what the bucket admits in that time. \"Of strict\" is how much was admitted of what a strict limiter admits of the same requests. "+
		"\"Held\" is the most that one node had not reported: what is forgotten if it dies then.\n\n", overload, plan.length, async.DefaultInterval, 1/async.DefaultPart)
	table := report.Table{Columns: []string{"limit", "load", "nodes", "too many, units", "too many", "of strict", "held, units", "Redis calls a decision"}}
	for i := range exact {
		e := &exact[i]
		table.Add(fmt.Sprintf("%s, %s", e.limit.Algorithm, &e.limit), e.load, fmt.Sprint(e.nodes), report.Number(max(0, e.excess)), fmt.Sprintf("%.2f %%", 100*e.over()),
			report.Percent(float64(e.admitted)/float64(e.strict)), report.Number(float64(e.held)), fmt.Sprintf("%.3f", float64(e.calls)/float64(e.requests)))
	}
	t.Say("%s", &table)
	strict, layer := &rows[0], &rows[1]
	t.AtLeast(10, layer.Over(strict, hot, measure.Sample.PerSecond), "hot key: throughput ÷ strict")
	t.AtMost(1.05, layer.Over(strict, cold, measure.Sample.ClientCPU), "cold keys: client CPU ÷ strict")
	t.AtMost(1.05, 1/layer.Over(strict, cold, measure.Sample.PerSecond), "cold keys: time of a decision ÷ strict")
	for _, a := range []headgate.Algorithm{headgate.TokenBucket, headgate.SlidingWindow} {
		worst := math.NaN()
		for i := range exact {
			if e := &exact[i]; e.load == "steady" && e.limit.Algorithm == a && !(worst >= e.over()) {
				worst = max(0, e.over())
			}
		}
		t.AtMost(0.01, worst, "steady load, %s, up to %d nodes: too many", a, plan.nodes[len(plan.nodes)-1])
	}
	return t
}

// What is asked for: one key, or many.
const hot, cold = 0, 1

// asynchronously measures the store alone and the layer around it.
func asynchronously(ctx context.Context, w *measure.Work, plan measure.Plan) (_ measure.Rows, err error) {
	rows := measure.Rows{{Name: "strict"}, {Name: "async"}}
	store, err := redis.Open(ctx, w.Redis.URL(), redis.WithTimeout(unhurried))
	if err != nil {
		return nil, err
	}
	defer store.Close()
	layer, err := async.New(store, async.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, layer.Close(ctx)) }()
	stores := []headgate.Store{store, layer.Store()}
	check := headgate.Check{
		Rule: headgate.MustRule("loose", headgate.PerSecond(headgate.MaxCount)), Hints: headgate.Hints{Consistency: headgate.Async},
	}
	var next atomic.Int64
	return rows, plan.Turns(ctx, w, rows, []int{hot, cold}, func(_, condition, i int) (measure.Sample, error) {
		l := load{plan.Callers, plan.Slice, check, func() string { return rows[i].Name }}
		if condition == cold {
			l.key = func() string { return workload.Key(int(next.Add(1))) }
		}
		return measure.Spending(ctx, w.Redis, func() (measure.Sample, error) { return l.insist(ctx, stores[i], true) })
	})
}

// compareExact has nodes asked for one key, under each limit and load.
func compareExact(ctx context.Context, w *measure.Work, plan asyncPlan) ([]exactness, error) {
	var all []exactness
	for _, limit := range limits(plan.rate) {
		for _, arrivals := range arrivals {
			for _, nodes := range plan.nodes {
				w.Say("%d nodes, %s load, %s", nodes, arrivals.name, limit.Algorithm)
				e, err := exact(ctx, w.Redis, plan, limit, arrivals, nodes)
				if err != nil {
					return nil, fmt.Errorf("%d nodes, %s: %w", nodes, arrivals.name, err)
				}
				all = append(all, e)
			}
		}
	}
	return all, nil
}
