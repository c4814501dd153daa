package asyncbench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/layered"
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
	async
	ways
)

var wayNames = [ways]string{"strict", "async"}

// Sample is one measurement of the throughput.
type Sample struct {
	Decisions, Calls int64 // and those of the server
	Elapsed          time.Duration
	CPU              time.Duration // of the client
}

// PerSecond is the throughput in decisions per second.
func (s Sample) PerSecond() float64 { return float64(s.Decisions) / s.Elapsed.Seconds() }

// Each is the CPU time of the client for each decision, in microseconds.
func (s Sample) Each() float64 { return float64(s.CPU.Nanoseconds()) / 1000 / float64(s.Decisions) }

// Asked is how many calls the server answered for each decision.
func (s Sample) Asked() float64 { return float64(s.Calls) / float64(s.Decisions) }

// Outcome is what was measured: the samples of each way, round by round, and what
// nodes together admit.
type Outcome struct {
	Version   string
	Plan      Plan
	Hot, Cold [ways][]Sample
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
	layer, err := layered.NewAsync(store, layered.AsyncOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, layer.Close(ctx)) }()
	stores := [ways]headgate.Store{store, layer.Store()}
	var next atomic.Int64
	for round := range o.Plan.Rounds {
		o.Plan.progress("%s: async, round %d of %d", s.Version, round+1, o.Plan.Rounds)
		for i := range ways {
			way := (i + round) % ways
			hot, err := measure(ctx, s, o.Plan, stores[way], func() string { return wayNames[way] })
			if err != nil {
				return err
			}
			cold, err := measure(ctx, s, o.Plan, stores[way], func() string { return workload.Key(int(next.Add(1))) })
			if err != nil {
				return err
			}
			o.Hot[way], o.Cold[way] = append(o.Hot[way], hot), append(o.Cold[way], cold)
		}
	}
	return nil
}

var errWrong = errors.New("a decision is wrong")

func measure(ctx context.Context, s *redisbench.Server, plan Plan, store headgate.Store, key func() string) (Sample, error) {
	before, err := s.Usage(ctx)
	if err != nil {
		return Sample{}, err
	}
	var decided atomic.Int64
	var failure atomic.Pointer[error]
	var all sync.WaitGroup
	cpu, start := cpuTime(), time.Now()
	for range plan.Callers {
		all.Go(func() {
			checks := []headgate.Check{{Rule: loose, Consistency: headgate.Async}}
			var dst []headgate.Decision
			done := int64(0)
			defer func() { decided.Add(done) }()
			for time.Since(start) < plan.Slice && failure.Load() == nil {
				checks[0].Key = key()
				var err error
				if dst, err = store.Take(ctx, headgate.OpTake, checks, dst[:0]); err == nil && !dst[0].Allowed {
					err = errWrong
				}
				if err != nil {
					failure.Store(&err)
					return
				}
				done++
			}
		})
	}
	all.Wait()
	sample := Sample{Elapsed: time.Since(start), CPU: cpuTime() - cpu, Decisions: decided.Load()}
	if err := failure.Load(); err != nil {
		return sample, *err
	}
	after, err := s.Usage(ctx)
	if err != nil {
		return sample, err
	}
	sample.Calls = after.Sub(before).Calls
	return sample, nil
}

// cpuTime is the CPU time that this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("asyncbench: getrusage of one's own process cannot fail: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
