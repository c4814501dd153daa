package storebench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/servers"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

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
		store, err := redis.Open(ctx, s.URL(), redis.WithTimeout(unhurried))
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
	var admitted []int64 // when, in microseconds since the Unix epoch
	var failure error
	var stop atomic.Bool
	var asking, watching sync.WaitGroup
	start := time.Now()
	for i, layer := range layers {
		asking.Go(func() {
			mine, out, err := askNode(ctx, layer, twin, rule, plan.length, func(since time.Duration) float64 {
				return load.at(i, nodes, since) * float64(plan.rate)
			}, start)
			mu.Lock()
			defer mu.Unlock()
			admitted = append(admitted, mine...)
			e.requests, e.admitted, e.strict = e.requests+out.requests, e.admitted+out.admitted, e.strict+out.strict
			failure = errors.Join(failure, err)
		})
		watching.Go(func() {
			for ; !stop.Load(); time.Sleep(tick) {
				held := layer.Stats().Unreported
				mu.Lock()
				e.held = max(e.held, held)
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
	e.calls = after.Sub(before).Calls
	e.weigh(admitted, time.Since(start))
	return e, nil
}

// askNode asks one node for a while, and the twin for the same. It returns when requests were
// admitted.
func askNode(ctx context.Context, layer *async.Layer, twin *memory.Store, rule *headgate.Rule, length time.Duration, rate func(time.Duration) float64, start time.Time) (admitted []int64, e exactness, err error) {
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
				return admitted, e, err
			}
			if dst[0].Allowed {
				e.strict++
			}
			if dst, err = store.Take(ctx, headgate.OpTake, checks, dst[:0]); err != nil {
				return admitted, e, err
			}
			if !dst[0].Allowed {
				continue
			}
			e.admitted++
			at := time.Now().UnixMicro()
			if dst[0].Source == headgate.SourceStore {
				at = int64(dst[0].At)
			}
			admitted = append(admitted, at)
		}
	}
	return admitted, e, nil
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
