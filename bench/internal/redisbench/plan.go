package redisbench

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/workload"
)

// Plan is how much is measured.
type Plan struct {
	// Rounds is how often each cell is measured; the tables show medians.
	Rounds int
	// Slice is how long one measurement of a cell lasts.
	Slice time.Duration
	// Callers are the numbers of goroutines that ask at the same time.
	Callers []int
	// Keys is how many keys are live where one limit is measured.
	Keys int
	// Windows are the sliding windows, the longest first.
	Windows []Window
	// WindowKeys is how many keys have a log for them.
	WindowKeys int
	// WeighedKeys is how many keys are counted in the server's memory.
	WeighedKeys int
	// Progress is told what is being measured; nil if nobody wants to know.
	Progress func(format string, args ...any)
}

// Window is one sliding window: so many requests in any period.
type Window struct {
	Limit  int64
	Period time.Duration
}

// String writes the window as "600 per 10m0s".
func (w Window) String() string { return fmt.Sprintf("%d per %v", w.Limit, w.Period) }

// Full is the plan of a run for the record: three to four minutes on two cores.
func Full() Plan {
	return Plan{
		Rounds: 5, Slice: 700 * time.Millisecond, Callers: []int{1, 64, 256}, Keys: 100_000,
		Windows:    []Window{{600, 600 * time.Second}, {30, 20 * time.Second}},
		WindowKeys: 2000, WeighedKeys: 200_000,
	}
}

// Short is the plan of a run that shows whether everything works.
func Short() Plan {
	return Plan{
		Rounds: 1, Slice: 150 * time.Millisecond, Callers: []int{1, 64, 256}, Keys: 10_000,
		Windows:    []Window{{600, 60 * time.Second}, {30, 2 * time.Second}},
		WindowKeys: 100, WeighedKeys: 10_000,
	}
}

// many is the number of callers wherever their number is not what is measured:
// enough to keep the server busy.
const many = 64

// The limits of the questions with one limit. At a day for 200 units, one unit
// takes seven minutes to come back: no bucket is full again, and no key gone from
// the server, when it is asked about next. The counts keep wide keys from running
// dry, and deny narrow ones from the second question on.
const day = 24 * time.Hour

var (
	strictLimits  = workload.Limits{{Count: 200, Period: day}, {Count: 1, Period: day}}
	weighedLimits = workload.Limits{{Count: 200, Period: day}, {Count: 200, Period: day}}
)

func (p Plan) progress(format string, args ...any) {
	if p.Progress != nil {
		p.Progress(format, args...)
	}
}

// Outcome is what a run on one server has measured.
type Outcome struct {
	Plan    Plan
	Version string // of the server
	// Strict has one limit a request, Several one limit and five of them.
	Strict, Several []Series
	// Denied is the share of denials in Strict, 0 to 1.
	Denied    float64
	Windows   []WindowResult
	Footprint []Footprint
}

// Run puts all questions to the contenders on one server, which is emptied
// before each question.
func Run(ctx context.Context, s *Server, plan Plan, entry Entry) (*Outcome, error) {
	o := &Outcome{Plan: plan, Version: s.Version}
	length := 1
	for length < 4*plan.Keys {
		length *= 2
	}
	keys := workload.Uniform(plan.Keys, length, 1)
	o.Denied = keys.NarrowShare()
	var err error
	if o.Strict, err = s.compare(ctx, plan, entry.Strict, plan.Callers, keys, byClass); err != nil {
		return nil, fmt.Errorf("one limit: %w", err)
	}
	if o.Several, err = s.compare(ctx, plan, entry.Several, []int{many}, keys, always); err != nil {
		return nil, fmt.Errorf("several limits: %w", err)
	}
	if o.Windows, err = s.windows(ctx, plan, entry.Windows); err != nil {
		return nil, fmt.Errorf("sliding windows: %w", err)
	}
	if o.Footprint, err = s.weigh(ctx, plan, entry.Strict); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	return o, nil
}

// Entry is who takes part in which question.
type Entry struct {
	Strict, Several []Contender
	Windows         []WindowContender
}
