package redisbench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/headgate/headgate/bench/internal/workload"
)

// Sample is one measurement: so many decisions by so many callers, each of whom
// asks again as soon as it is answered.
type Sample struct {
	Decisions int
	Elapsed   time.Duration
	Latency   *hdrhistogram.Histogram // in nanoseconds
	Server    Usage
	Client    time.Duration // CPU time of the harness's process
}

// PerSecond is the throughput in decisions per second.
func (s Sample) PerSecond() float64 { return float64(s.Decisions) / s.Elapsed.Seconds() }

// Quantile is the latency, in microseconds, that q percent of the decisions did
// not exceed.
func (s Sample) Quantile(q float64) float64 { return float64(s.Latency.ValueAtPercentile(q)) / 1000 }

// ServerCPU is the CPU time of the server's main thread for each decision, in
// microseconds.
func (s Sample) ServerCPU() float64 { return s.each(s.Server.CPU) }

// ScriptTime is the time inside scripts for each decision, in microseconds.
func (s Sample) ScriptTime() float64 { return s.each(s.Server.Scripts) }

// Calls is the number of script calls for each decision.
func (s Sample) Calls() float64 { return float64(s.Server.Calls) / float64(s.Decisions) }

// ClientCPU is the CPU time of the client for each decision, in microseconds.
// The harness's own work, two looks at the clock or less, is in it.
func (s Sample) ClientCPU() float64 { return s.each(s.Client) }

func (s Sample) each(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(s.Decisions)
}

// A histogram's bounds: from a microsecond's fraction to longer than any call
// may take, to three digits.
const (
	lowest, highest = int64(100), int64(time.Minute)
	digits          = 3
)

// question asks about the decision number i.
type question func(ctx context.Context, i int) error

// measure has callers ask until enough reports that the decision with the given
// number is not to be made any more.
func (s *Server) measure(ctx context.Context, callers int, enough func(i int) bool, ask question) (Sample, error) {
	spent, err := s.Usage(ctx)
	if err != nil {
		return Sample{}, err
	}
	cpu := cpuTime()
	start := time.Now()
	latencies, err := askAll(ctx, callers, enough, ask)
	elapsed := time.Since(start)
	sample := Sample{Elapsed: elapsed, Client: cpuTime() - cpu}
	if err != nil {
		return Sample{}, err
	}
	now, err := s.Usage(ctx)
	if err != nil {
		return Sample{}, err
	}
	sample.Server = now.Sub(spent)
	sample.Latency = hdrhistogram.New(lowest, highest, digits)
	for _, each := range latencies {
		sample.Decisions += len(each)
		for _, ns := range each {
			if err := sample.Latency.RecordValue(ns); err != nil {
				return Sample{}, fmt.Errorf("redisbench: a call took %v: %w", time.Duration(ns), err)
			}
		}
	}
	if sample.Decisions == 0 {
		return Sample{}, errors.New("redisbench: nothing was decided within the time of a slice")
	}
	return sample, nil
}

// askAll returns each caller's latencies in nanoseconds. The first error ends it.
func askAll(ctx context.Context, callers int, enough func(i int) bool, ask question) ([][]int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		next      atomic.Int64
		wg        sync.WaitGroup
		latencies = make([][]int64, callers)
	)
	for w := range callers {
		wg.Go(func() {
			at := time.Now()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if enough(i) {
					return
				}
				if err := ask(ctx, i); err != nil {
					cancel(fmt.Errorf("decision %d: %w", i, err)) // Later causes are ignored.
					return
				}
				now := time.Now()
				latencies[w] = append(latencies[w], now.Sub(at).Nanoseconds())
				at = now
			}
		})
	}
	wg.Wait()
	return latencies, context.Cause(ctx)
}

// until is enough once d has passed, and something was asked.
func until(d time.Duration) func(int) bool {
	end := time.Now().Add(d)
	return func(i int) bool { return i > 0 && !time.Now().Before(end) }
}

// times is enough after n decisions.
func times(n int) func(int) bool { return func(i int) bool { return i >= n } }

// insist asks once and returns an error if the answer is not as expected: the
// time of a wrong answer is worth nothing.
func insist(ctx context.Context, l *Limiter, class workload.Class, key string, want bool) error {
	allowed, err := l.Take(ctx, class, key)
	if err != nil {
		return fmt.Errorf("key %s (%s): %w", key, class, err)
	}
	if allowed != want {
		return fmt.Errorf("key %s (%s): allowed is %t, must be %t", key, class, allowed, want)
	}
	return nil
}

// cpuTime is the CPU time that this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("redisbench: getrusage of one's own process cannot fail: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
