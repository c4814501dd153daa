package storebench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/memory"
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
		measure.Plan{Rounds: 40, Slice: 100 * time.Millisecond, Callers: 64},
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
	t.Say("\n%d to %d nodes that share one key, and are asked together for %d times what its limit admits, for %v; a report every %v, a part of 1/%.0f. \"Too many\" is the most by which the limit was ever exceeded: "+
		"of a window's count, or of what the bucket admits in that time. \"Of strict\" is how much was admitted of what a strict limiter admits of the same requests. "+
		"\"Held\" is the most that one node had not reported: what is forgotten if it dies then. Each row has the worst of all numbers of nodes.\n\n", plan.nodes[0], plan.nodes[len(plan.nodes)-1], overload, plan.length, async.DefaultInterval, 1/async.DefaultPart)
	t.Say("%s", worstOf(exact))
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
	store, err := redis.Open(ctx, w.Redis.URL(), redis.Timeout(unhurried))
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
		Rule: headgate.MustRule("loose", headgate.PerSecond(1_000_000_000)), Hints: headgate.Hints{Consistency: headgate.Async},
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

// worstOf has a row for each limit and load, with the worst figures of all numbers of nodes.
func worstOf(exact []exactness) *report.Table {
	table := &report.Table{Columns: []string{"limit", "load", "too many", "of strict", "held, units", "Redis calls a decision"}}
	for first := 0; first < len(exact); {
		e := &exact[first]
		over, share, held, calls := 0.0, math.Inf(1), int64(0), 0.0
		for ; first < len(exact) && exact[first].limit == e.limit && exact[first].load == e.load; first++ {
			one := &exact[first]
			over, share = max(over, one.over()), min(share, float64(one.admitted)/float64(one.strict))
			held, calls = max(held, one.held), max(calls, float64(one.calls)/float64(one.requests))
		}
		table.Add(fmt.Sprintf("%s, %s", e.limit.Algorithm, &e.limit), e.load, fmt.Sprintf("%.2f %%", 100*over), report.Percent(share), report.Number(float64(held)), fmt.Sprintf("%.3f", calls))
	}
	return table
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

// arrival is how many units a second one of several nodes is asked for at a time, as a share
// of the limit's own rate.
type arrival struct {
	name string
	at   func(node, nodes int, since time.Duration) float64
}

// overload is how many times the limit's rate all nodes together are asked for.
const overload = 2

var arrivals = []arrival{
	{"steady", func(_, nodes int, _ time.Duration) float64 { return overload / float64(nodes) }},
	// All at once for a fifth of each second.
	{"bursty", func(_, nodes int, since time.Duration) float64 {
		if since%time.Second < time.Second/5 {
			return 5 * overload / float64(nodes)
		}
		return 0
	}},
	// One node after the other, for 300 ms each.
	{"shifting", func(node, nodes int, since time.Duration) float64 {
		if int(since/(300*time.Millisecond))%nodes == node {
			return overload
		}
		return 0
	}},
}

// limits are those that what is admitted is compared with.
func limits(rate int64) []headgate.Limit {
	return []headgate.Limit{headgate.PerSecond(rate), headgate.Sliding(5*rate, 5*time.Second)}
}

// exactness is what some nodes have admitted of one limit under one load.
type exactness struct {
	limit headgate.Limit
	load  string
	nodes int
	// requests is how many were made, admitted how many of them were admitted, strict how many
	// a strict limiter admits of them, and calls how many calls the server answered.
	requests, admitted, strict, calls int64
	// excess is the most units that the limit was ever exceeded by, and may what it
	// admits: in a window, or in all the time.
	excess, may float64
	// held is the most that one node had admitted and not reported at any time: what
	// would be forgotten if it died.
	held int64
	// times are when one node admitted requests, in microseconds since the Unix epoch.
	times []int64
}

// over is what was admitted beyond the limit, as a share of the limit.
func (e *exactness) over() float64 { return e.excess / e.may }

// tick is how often a node is asked, for as many units as are due.
const tick = 2 * time.Millisecond

// exact has nodes asked for one key.
func exact(ctx context.Context, s *servers.Redis, plan asyncPlan, limit headgate.Limit, load arrival, nodes int) (e exactness, err error) {
	e = exactness{limit: limit, load: load.name, nodes: nodes}
	rule, err := headgate.NewRule(fmt.Sprintf("%s.%d.%d", load.name, nodes, limit.Algorithm), limit)
	if err != nil {
		return e, err
	}
	layers := make([]*async.Layer, nodes)
	for i := range layers {
		store, err := redis.Open(ctx, s.URL(), redis.Timeout(unhurried))
		if err != nil {
			return e, err
		}
		defer store.Close()
		if layers[i], err = async.New(store, async.Options{}); err != nil {
			return e, err
		}
		defer func() { err = errors.Join(err, layers[i].Close(ctx)) }()
	}
	before, err := s.Usage(ctx)
	if err != nil {
		return e, err
	}
	twin := memory.New() // decides the same requests strictly
	all, start := make([]exactness, nodes), time.Now()
	err = measure.Each(ctx, nodes, func(ctx context.Context, i int) error {
		return all[i].ask(ctx, layers[i], twin, rule, plan.length, start, func(since time.Duration) float64 {
			return load.at(i, nodes, since) * float64(plan.rate)
		})
	})
	elapsed := time.Since(start)
	if err != nil {
		return e, err
	}
	after, err := s.Usage(ctx)
	if err != nil {
		return e, err
	}
	e.calls = after.Sub(before).Calls
	var times []int64
	for i := range all {
		one := &all[i]
		e.requests, e.admitted, e.strict = e.requests+one.requests, e.admitted+one.admitted, e.strict+one.strict
		e.held, times = max(e.held, one.held), append(times, one.times...)
	}
	e.weigh(times, elapsed)
	return e, nil
}

// ask asks one node for a while, and the twin for the same.
func (e *exactness) ask(ctx context.Context, layer *async.Layer, twin *memory.Store, rule *headgate.Rule, length time.Duration, start time.Time, rate func(time.Duration) float64) (err error) {
	store := layer.Store()
	checks := []headgate.Check{{Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: headgate.Async}}}
	var dst []headgate.Decision
	due, last := 0.0, time.Duration(0)
	for last < length {
		time.Sleep(tick)
		since := time.Since(start)
		due += rate(since) * (since - last).Seconds()
		last = since
		for ; due >= 1; due-- {
			e.requests++
			if dst, err = twin.Take(ctx, headgate.OpTake, checks, dst[:0]); err != nil {
				return err
			}
			if dst[0].Allowed {
				e.strict++
			}
			if dst, err = store.Take(ctx, headgate.OpTake, checks, dst[:0]); err != nil {
				return err
			}
			if !dst[0].Allowed {
				continue
			}
			e.admitted++
			at := time.Now().UnixMicro()
			if dst[0].Source == headgate.SourceStore {
				at = int64(dst[0].At)
			}
			e.times = append(e.times, at)
		}
		e.held = max(e.held, layer.Stats().Unreported)
	}
	return nil
}

// weigh compares what was admitted with the limit, one unit after the other.
func (e *exactness) weigh(admitted []int64, elapsed time.Duration) {
	slices.Sort(admitted)
	capacity := float64(e.limit.Capacity())
	if e.limit.Algorithm == headgate.TokenBucket {
		rate := float64(e.limit.Count) / float64(e.limit.Period.Microseconds())
		e.may = capacity + rate*float64(elapsed.Microseconds())
		used, last := 0.0, int64(0)
		for _, at := range admitted {
			used = max(0, used-rate*float64(at-last)) + 1
			last = at
			e.excess = max(e.excess, used-capacity)
		}
		return
	}
	e.may = capacity
	first := 0
	for i, at := range admitted {
		for admitted[first] <= at-e.limit.Period.Microseconds() {
			first++
		}
		e.excess = max(e.excess, float64(i-first+1)-capacity)
	}
}
