package storebench

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
)

// TestAsync goes through everything once. Figures of so short a time mean nothing, but
// who is asked does.
func TestAsync(t *testing.T) {
	withRedis(t, func(t *testing.T, w *measure.Work) {
		plan := asyncPlan{measure.Plan{Rounds: 1, Slice: 200 * time.Millisecond, Callers: 8}, []int{1, 3}, 300 * time.Millisecond, 1000}
		var rows measure.Rows
		eventually(t, w, plan.Slice, func(slice time.Duration) (wrong string) {
			plan.Slice = slice
			var err error
			if rows, err = asynchronously(t.Context(), w, plan.Plan); err != nil {
				t.Fatal(err)
			}
			for way := range rows {
				hot, cold := rows[way].Samples[hot][0], rows[way].Samples[cold][0]
				if hot.Done == 0 || cold.Calls == 0 || way == 0 && hot.Calls == 0 || way == 1 && hot.Calls >= int64(hot.Done) {
					wrong = fmt.Sprintf("%s: hot %+v, cold %+v", rows[way].Name, hot, cold)
				}
			}
			return wrong
		})
		var exact []exactness
		eventually(t, w, plan.length, func(length time.Duration) (wrong string) {
			plan.length = length
			var err error
			if exact, err = compareExact(t.Context(), w, plan); err != nil {
				t.Fatal(err)
			}
			for _, e := range exact {
				if e.admitted > e.requests {
					t.Errorf("got %+v", e)
				}
				if e.requests == 0 || e.admitted == 0 || e.strict == 0 || e.held == 0 {
					wrong = fmt.Sprintf("got %+v", e)
				}
			}
			return wrong
		})
		if len(exact) != 2*2*3 {
			t.Errorf("%d rows", len(exact))
		}
		holds(t, asyncText("", plan, rows, exact), "hot key, async", "shifting", "bars are met")
	}, "redis-server", "valkey-server")
}

// TestWeigh: more than the limit is told, and not more than that is none.
func TestWeigh(t *testing.T) {
	var even, burst []int64
	for i := range int64(100) {
		even = append(even, 1e6+i*100_000)
		burst = append(burst, 1e6+i)
	}
	for i, want := range []float64{90, 50} {
		e := exactness{limit: limits(10)[i]}
		if e.weigh(even, 10*time.Second); e.excess > 0 {
			t.Errorf("%s: %v too many of an even stream", e.limit.Algorithm, e.excess)
		}
		if e.weigh(burst, time.Second); e.excess < want-1 || e.excess > want {
			t.Errorf("%s: %v too many of a burst, want %v", e.limit.Algorithm, e.excess, want)
		}
	}
}
