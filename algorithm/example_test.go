package algorithm_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// A decision on one limit, as a store makes it.
func Example() {
	rule := headgate.MustRule("api", headgate.PerSecond(2))
	limit := &rule.Limits()[0]
	var state algorithm.State // what a store would keep
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond} {
		now := headgate.Instant(start.Add(after).UnixMicro())
		before := algorithm.Advance(limit, state, now)
		charged, fits := before, algorithm.Fits(limit, before, now, 1)
		if fits {
			charged = algorithm.Charge(limit, before, now, 1)
			state = charged
		}
		var d headgate.Decision
		algorithm.Describe(&d, limit, before, charged, now, 1, fits)
		fmt.Println(after, d.Allowed, d.Remaining, d.RetryAfter)
	}
	// Output:
	// 0s true 1 0s
	// 100ms true 0 0s
	// 200ms false 0 300ms
	// 500ms true 0 0s
}

func ExampleWindow() {
	rule := headgate.MustRule("report", headgate.Limit{
		Algorithm: headgate.FixedWindow, Count: 3, Align: headgate.AlignMonth,
	})
	now := time.Date(2028, 2, 20, 15, 0, 0, 0, time.UTC)
	start, end := algorithm.Window(&rule.Limits()[0], headgate.Instant(now.UnixMicro()))
	fmt.Println(start.Time().UTC().Format(time.DateOnly), end.Time().UTC().Format(time.DateOnly))
	// Output: 2028-02-01 2028-03-01
}
