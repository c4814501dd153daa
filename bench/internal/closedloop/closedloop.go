// Package closedloop measures stores that stand around one server: callers ask as soon
// as they are answered, for a while, and it is counted what the process and the server
// have done for it.
package closedloop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/bench/internal/report"
)

// Load is what callers ask.
type Load struct {
	// Callers is how many ask at the same time, and Slice for how long.
	Callers int
	Slice   time.Duration
	// Check is that of every request but for its key, which Key returns. It is called
	// by all callers at once.
	Check headgate.Check
	Key   func() string
	// Admitted is what the first limit must say to every request.
	Admitted bool
}

// Sample is one measurement.
type Sample struct {
	Decisions, Calls int64 // and those of the server
	Elapsed          time.Duration
	CPU              time.Duration // of the client
}

// PerSecond is the throughput in decisions per second.
func (s Sample) PerSecond() float64 { return float64(s.Decisions) / s.Elapsed.Seconds() }

// Each is the CPU time of the client for each decision, in microseconds.
func (s Sample) Each() float64 { return float64(s.CPU.Nanoseconds()) / 1000 / float64(s.Decisions) }

// Asked is how many calls the server answered for each decision. One call may carry
// many.
func (s Sample) Asked() float64 { return float64(s.Calls) / float64(s.Decisions) }

// Relative is a figure of some samples over that of others, which were measured in the
// same rounds: the median of what it was in each round.
func Relative(samples, to []Sample, figure func(Sample) float64) float64 {
	ratios := make([]float64, len(samples))
	for n := range ratios {
		ratios[n] = report.Ratio(figure(samples[n]), figure(to[n]))
	}
	return report.Median(ratios)
}

// clockEvery is after how many decisions a caller looks whether the time is over: to
// look at the clock costs a part of what a decision from memory does.
const clockEvery = 16

var errWrong = errors.New("a decision is wrong")

// Measure asks the store, which stands around the server or is its own.
func Measure(ctx context.Context, server *redisbench.Server, store headgate.Store, load Load) (Sample, error) {
	before, err := server.Usage(ctx)
	if err != nil {
		return Sample{}, err
	}
	var decided atomic.Int64
	var failure atomic.Pointer[error]
	var all sync.WaitGroup
	cpu, start := cpuTime(), time.Now()
	for range load.Callers {
		all.Go(func() {
			checks := []headgate.Check{load.Check}
			var dst []headgate.Decision
			done := int64(0)
			defer func() { decided.Add(done) }()
			for done%clockEvery != 0 || time.Since(start) < load.Slice && failure.Load() == nil {
				checks[0].Key = load.Key()
				var err error
				if dst, err = store.Take(ctx, headgate.OpTake, checks, dst[:0]); err == nil && dst[0].Allowed != load.Admitted {
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
	after, err := server.Usage(ctx)
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
		panic("closedloop: getrusage of one's own process cannot fail: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
