package outagebench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/bench/internal/workload"
)

// Well is what one way costs while the store is well.
type Well struct {
	Name    string
	Samples []Sample
}

// Sample is one measurement: callers that ask again as soon as they are answered.
type Sample struct {
	Decisions int64
	Elapsed   time.Duration
	CPU       time.Duration // of the client
}

// PerSecond is the throughput in decisions per second.
func (s Sample) PerSecond() float64 { return float64(s.Decisions) / s.Elapsed.Seconds() }

// Each is the CPU time of the client for each decision, in microseconds.
func (s Sample) Each() float64 { return float64(s.CPU.Nanoseconds()) / 1000 / float64(s.Decisions) }

// unhurried is a deadline that no call on a saturated machine exceeds.
const unhurried = 3 * time.Second

// well measures all ways in turn, each round beginning with another one.
func well(ctx context.Context, s *redisbench.Server, plan Plan) ([]Well, error) {
	result := make([]Well, len(ways))
	opened := make([]*way, len(ways))
	for i := range ways {
		w, err := open(ctx, s, i, unhurried)
		if err != nil {
			return nil, err
		}
		defer w.close()
		opened[i], result[i].Name = w, w.name
	}
	for round := range plan.Rounds {
		plan.progress("%s: well, round %d of %d", s.Version, round+1, plan.Rounds)
		for i := range ways {
			i = (i + round) % len(ways)
			sample, err := saturate(ctx, opened[i].store, plan)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", ways[i].name, err)
			}
			result[i].Samples = append(result[i].Samples, sample)
		}
	}
	return result, nil
}

func saturate(ctx context.Context, store headgate.Store, plan Plan) (Sample, error) {
	var next, decided atomic.Int64
	var failure atomic.Pointer[error]
	var all sync.WaitGroup
	cpu, start := cpuTime(), time.Now()
	for range plan.Callers {
		all.Go(func() {
			checks := []headgate.Check{{Rule: rule}}
			var dst []headgate.Decision
			for time.Since(start) < plan.Slice && failure.Load() == nil {
				checks[0].Key = workload.Key(int(next.Add(1)) % plan.Keys)
				var err error
				if dst, err = store.Take(ctx, headgate.OpTake, checks, dst[:0]); err == nil && !dst[0].Allowed {
					err = errWrong
				}
				if err != nil {
					failure.Store(&err)
					return
				}
				decided.Add(1)
			}
		})
	}
	all.Wait()
	if err := failure.Load(); err != nil {
		return Sample{}, *err
	}
	return Sample{decided.Load(), time.Since(start), cpuTime() - cpu}, nil
}

// cpuTime is the CPU time that this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("outagebench: getrusage of one's own process cannot fail: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
