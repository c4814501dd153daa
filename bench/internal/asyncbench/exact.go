package asyncbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// load is how many units a second one of several nodes is asked for at a time, in
// parts of the limit's own rate.
type load struct {
	name string
	at   func(node, nodes int, since time.Duration) float64
}

// overload is how many times the limit's rate all nodes together are asked for.
const overload = 2

var loads = []load{
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

// limits are those that are held against what is admitted.
func limits(p Plan) []headgate.Limit {
	return []headgate.Limit{headgate.PerSecond(p.Rate), headgate.Sliding(5*p.Rate, 5*time.Second)}
}

// Exact is what some nodes have admitted of one limit under one load.
type Exact struct {
	Limit headgate.Limit
	Load  string
	Nodes int
	// Requests is how many were made, Admitted how many were admitted, Strict how many
	// a strict limiter admits of them, and Calls how many the server answered.
	Requests, Admitted, Strict, Calls int64
	// Excess is the most units that the limit was ever exceeded by, and May what it
	// admits: in a window, or in all the time.
	Excess, May float64
	// Held is the most that one node had admitted and not reported at any time: what
	// would be forgotten if it died.
	Held int64
}

// Over is the over-admission as a share of the limit.
func (e *Exact) Over() float64 { return e.Excess / e.May }

// OfStrict is how much is admitted of what a strict limiter admits.
func (e *Exact) OfStrict() float64 { return float64(e.Admitted) / float64(e.Strict) }

// letIn is one admitted request.
type letIn struct {
	at int64 // microseconds since the Unix epoch
}

// tick is how often a node is asked, for as many units as are due.
const tick = 2 * time.Millisecond

// exact has nodes asked for one key.
func exact(ctx context.Context, s *redisbench.Server, plan Plan, limit headgate.Limit, load load, nodes int) (e Exact, err error) {
	e = Exact{Limit: limit, Load: load.name, Nodes: nodes}
	rule, err := headgate.NewRule(fmt.Sprintf("%s.%d.%d", load.name, nodes, limit.Algorithm), limit)
	if err != nil {
		return e, err
	}
	layers := make([]*async.Layer, nodes)
	for i := range layers {
		store, err := redis.Open(ctx, "redis://"+s.Addr, redis.WithTimeout(unhurried))
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
	var mu sync.Mutex    // guards admitted, e and failure
	var admitted []letIn
	var failure error
	var stop atomic.Bool
	var asking, watching sync.WaitGroup
	start := time.Now()
	for i, layer := range layers {
		asking.Go(func() {
			mine, out, err := ask(ctx, layer, twin, rule, plan, func(since time.Duration) float64 {
				return load.at(i, nodes, since) * float64(plan.Rate)
			}, start)
			mu.Lock()
			defer mu.Unlock()
			admitted = append(admitted, mine...)
			e.Requests, e.Admitted, e.Strict = e.Requests+out.Requests, e.Admitted+out.Admitted, e.Strict+out.Strict
			failure = errors.Join(failure, err)
		})
		watching.Go(func() {
			for ; !stop.Load(); time.Sleep(tick) {
				held := layer.Stats().Unreported
				mu.Lock()
				e.Held = max(e.Held, held)
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	stop.Store(true)
	watching.Wait()
	if failure != nil {
		return e, failure
	}
	after, err := s.Usage(ctx)
	if err != nil {
		return e, err
	}
	e.Calls = after.Sub(before).Calls
	e.weigh(admitted, time.Since(start))
	return e, nil
}

// ask asks one node for a while, and the twin for the same.
func ask(ctx context.Context, layer *async.Layer, twin *memory.Store, rule *headgate.Rule, plan Plan, rate func(time.Duration) float64, start time.Time) (admitted []letIn, e Exact, err error) {
	store := layer.Store()
	checks := []headgate.Check{{Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: headgate.Async}}}
	var dst []headgate.Decision
	due, last := 0.0, time.Duration(0)
	for last < plan.Length {
		time.Sleep(tick)
		since := time.Since(start)
		due += rate(since) * (since - last).Seconds()
		last = since
		for ; due >= 1; due-- {
			e.Requests++
			if dst, err = twin.Take(ctx, headgate.OpTake, checks, dst[:0]); err != nil {
				return admitted, e, err
			}
			if dst[0].Allowed {
				e.Strict++
			}
			if dst, err = store.Take(ctx, headgate.OpTake, checks, dst[:0]); err != nil {
				return admitted, e, err
			}
			if !dst[0].Allowed {
				continue
			}
			e.Admitted++
			at := time.Now().UnixMicro()
			if dst[0].Source == headgate.SourceStore {
				at = int64(dst[0].At)
			}
			admitted = append(admitted, letIn{at})
		}
	}
	return admitted, e, nil
}

// weigh holds what was admitted against the limit, one unit after the other.
func (e *Exact) weigh(admitted []letIn, elapsed time.Duration) {
	slices.SortFunc(admitted, func(a, b letIn) int { return cmp.Compare(a.at, b.at) })
	capacity := float64(e.Limit.Capacity())
	if e.Limit.Algorithm == headgate.TokenBucket {
		rate := float64(e.Limit.Count) / float64(e.Limit.Period.Microseconds())
		e.May = capacity + rate*float64(elapsed.Microseconds())
		used, last := 0.0, int64(0)
		for _, a := range admitted {
			used = max(0, used-rate*float64(a.at-last)) + 1
			last = a.at
			e.Excess = max(e.Excess, used-capacity)
		}
		return
	}
	e.May = capacity
	first := 0
	for i, a := range admitted {
		for admitted[first].at <= a.at-e.Limit.Period.Microseconds() {
			first++
		}
		e.Excess = max(e.Excess, float64(i-first+1)-capacity)
	}
}
