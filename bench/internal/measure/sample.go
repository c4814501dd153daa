package measure

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Sample is one measurement: what was done in a slice of time, and what it cost. What a part does
// not measure stays zero.
type Sample struct {
	// Done is how many decisions, requests or matches there were, and Admitted how many of them
	// were admitted.
	Done, Admitted int
	Elapsed        time.Duration
	// Took is how long each of them took, in nanoseconds.
	Took *hdrhistogram.Histogram
	// Client is the CPU time of this process. Server is that of the server's process, or of the
	// thread of Redis that runs commands.
	Client, Server time.Duration
	// Scripts is the time inside the scripts of Redis, and Calls how often they were called.
	Scripts time.Duration
	Calls   int64
	// Allocs is how many objects this process has allocated.
	Allocs uint64
}

// Figure is one number of a sample.
type Figure func(Sample) float64

// PerSecond is the throughput.
func (s Sample) PerSecond() float64 { return float64(s.Done) / s.Elapsed.Seconds() }

// Nanos is the time that passed for each decision, on all cores together: with two
// cores, half of what each decision took.
func (s Sample) Nanos() float64 { return float64(s.Elapsed.Nanoseconds()) / float64(s.Done) }

// AllocsEach is the number of allocations for each decision.
func (s Sample) AllocsEach() float64 { return float64(s.Allocs) / float64(s.Done) }

// CallsEach is the number of calls of a script for each decision. One call may carry many.
func (s Sample) CallsEach() float64 { return float64(s.Calls) / float64(s.Done) }

// ClientCPU is the CPU time of this process for each decision, in microseconds. It includes the
// loop that asks.
func (s Sample) ClientCPU() float64 { return s.each(s.Client) }

// ServerCPU is the CPU time of the server for each decision, in microseconds.
func (s Sample) ServerCPU() float64 { return s.each(s.Server) }

// ScriptTime is the time inside scripts for each decision, in microseconds.
func (s Sample) ScriptTime() float64 { return s.each(s.Scripts) }

func (s Sample) each(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(s.Done)
}

// P50 is the median of the times, in microseconds.
func (s Sample) P50() float64 { return s.quantile(50) }

// P99 is the time, in microseconds, that 99 % did not exceed.
func (s Sample) P99() float64 { return s.quantile(99) }

// P999 is the time, in microseconds, that 99.9 % did not exceed.
func (s Sample) P999() float64 { return s.quantile(99.9) }

func (s Sample) quantile(q float64) float64 { return float64(s.Took.ValueAtPercentile(q)) / 1000 }

// Millis is a figure in milliseconds that was one in microseconds.
func Millis(micros Figure) Figure { return func(s Sample) float64 { return micros(s) / 1000 } }

// Histogram returns one for times in nanoseconds, from a fraction of a microsecond to longer than
// any call may take, with three digits.
func Histogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(100, int64(time.Minute), 3)
}
