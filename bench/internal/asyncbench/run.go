package asyncbench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/closedloop"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/redis"
)

// Plan is how much is measured.
type Plan struct {
	// Rounds is how often the throughput is measured, Slice how long each measurement
	// lasts, and Callers how many ask at the same time, as soon as they are answered.
	Rounds  int
	Slice   time.Duration
	Callers int
	// Nodes are the numbers of nodes that share a limit, Length is for how long they
	// are asked, and Rate how many units a second the limit is.
	Nodes  []int
	Length time.Duration
	Rate   int64
	// Progress is told what is being measured; nil if nobody wants to know.
	Progress func(format string, args ...any)
}

// Full is the plan of a run for the record: about four minutes.
func Full() Plan {
	return Plan{Rounds: 15, Slice: 250 * time.Millisecond, Callers: 64, Nodes: []int{1, 2, 4, 8, 16}, Length: 7 * time.Second, Rate: 2000}
}

// Short is the plan of a run that shows whether everything works.
func Short() Plan {
	return Plan{Rounds: 2, Slice: 200 * time.Millisecond, Callers: 64, Nodes: []int{1, 16}, Length: time.Second, Rate: 2000}
}

func (p Plan) progress(format string, args ...any) {
	if p.Progress != nil {
		p.Progress(format, args...)
	}
}

// The ways to ask.
const (
	strict = iota
	asynchronous
	ways
)

var wayNames = [ways]string{"strict", "async"}

// Outcome is what was measured: the samples of each way, round by round, and what
// nodes together admit.
type Outcome struct {
	Version   string
	Plan      Plan
	Hot, Cold [ways][]closedloop.Sample
	Exact     []Exact
}

// unhurried is a deadline that no call on a saturated machine exceeds.
const unhurried = 3 * time.Second

var loose = headgate.MustRule("loose", headgate.PerSecond(headgate.MaxCount))

// Run measures everything on the server.
func Run(ctx context.Context, s *redisbench.Server, plan Plan) (*Outcome, error) {
	o := &Outcome{Version: s.Version, Plan: plan}
	if err := o.throughput(ctx, s); err != nil {
		return nil, fmt.Errorf("asyncbench: %w", err)
	}
	for _, limit := range limits(plan) {
		for _, load := range loads {
			for _, nodes := range plan.Nodes {
				plan.progress("%s: async, %d nodes, %s load, %s", s.Version, nodes, load.name, limit.Algorithm)
				e, err := exact(ctx, s, plan, limit, load, nodes)
				if err != nil {
					return nil, fmt.Errorf("asyncbench: %d nodes, %s: %w", nodes, load.name, err)
				}
				o.Exact = append(o.Exact, e)
			}
		}
	}
	return o, nil
}

func (o *Outcome) throughput(ctx context.Context, s *redisbench.Server) (err error) {
	store, err := redis.Open(ctx, "redis://"+s.Addr, redis.WithTimeout(unhurried))
	if err != nil {
		return err
	}
	defer store.Close()
	layer, err := async.New(store, async.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, layer.Close(ctx)) }()
	stores := [ways]headgate.Store{store, layer.Store()}
	load := closedloop.Load{
		Callers: o.Plan.Callers, Slice: o.Plan.Slice, Admitted: true,
		Check: headgate.Check{Rule: loose, Hints: headgate.Hints{Consistency: headgate.Async}},
	}
	var next atomic.Int64
	for round := range o.Plan.Rounds {
		o.Plan.progress("%s: async, round %d of %d", s.Version, round+1, o.Plan.Rounds)
		for i := range ways {
			way := (i + round) % ways
			load.Key = func() string { return wayNames[way] }
			hot, err := closedloop.Measure(ctx, s, stores[way], load)
			if err != nil {
				return err
			}
			load.Key = func() string { return workload.Key(int(next.Add(1))) }
			cold, err := closedloop.Measure(ctx, s, stores[way], load)
			if err != nil {
				return err
			}
			o.Hot[way], o.Cold[way] = append(o.Hot[way], hot), append(o.Cold[way], cold)
		}
	}
	return nil
}
