package shed

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// Config says how a [Gate] queues and sheds.
type Config struct {
	// Name appears in rejections and errors.
	Name string
	// Queue is how many requests may wait. Zero means 1000.
	Queue int
	// Interval is how long a request of a sheddable class may wait. Zero means 100 ms.
	// Requests of critical classes may wait two and a half times as long.
	Interval time.Duration
	// Target is how long a request of a sheddable class may wait in a queue that stands. A queue
	// stands when no request has passed it within Target for an Interval. Zero means 5 ms. For
	// critical classes, it is one and a half times the Interval.
	Target time.Duration
	// Signals report how short the process is of resources.
	Signals []Signal
	// Sample is how often signals are read. Zero means 100 ms.
	Sample time.Duration
	// SignalFailed is called when a signal cannot be read, which then counts as no pressure. It may
	// be nil. It runs in the goroutine of a request.
	SignalFailed func(error)
	// Seed determines which requests are shed because of pressure.
	Seed uint64
}

func (c *Config) fill() error {
	var problems headgate.Problems
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			problems.Add(field, format, args...)
		}
	}
	check(c.Queue >= 0, "queue", "the queue is %d, must be 1 or more, or 0 for 1000", c.Queue)
	check(c.Interval >= 0, "interval", "the interval is %v, must be more than 0, or 0 for 100 ms", c.Interval)
	check(c.Target >= 0, "target", "the target is %v, must be more than 0, or 0 for 5 ms", c.Target)
	check(c.Sample >= 0, "sample", "the time between samples is %v, must be more than 0, or 0 for 100 ms", c.Sample)
	if c.Queue == 0 {
		c.Queue = 1000
	}
	if c.Interval == 0 {
		c.Interval = 100 * time.Millisecond
	}
	if c.Target == 0 {
		c.Target = min(5*time.Millisecond, c.Interval)
	}
	if c.Sample == 0 {
		c.Sample = 100 * time.Millisecond
	}
	check(c.Target <= c.Interval, "target", "the target is %v, must be at most the interval, %v", c.Target, c.Interval)
	return problems.Err(fmt.Sprintf("shedding %q", c.Name))
}
