package asyncbench

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/redisbench"
)

// TestRun goes through everything once. Figures of so short a time mean nothing, but
// who is asked does.
func TestRun(t *testing.T) {
	for _, program := range []string{"redis-server", "valkey-server"} {
		t.Run(program, func(t *testing.T) {
			s, err := redisbench.Start(t.Context(), program)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}()
			o, err := Run(t.Context(), s, Plan{Rounds: 1, Slice: 200 * time.Millisecond, Callers: 8, Nodes: []int{1, 3}, Length: 300 * time.Millisecond, Rate: 1000})
			if err != nil {
				t.Fatal(err)
			}
			for way := range ways {
				hot, cold := o.Hot[way][0], o.Cold[way][0]
				if hot.Decisions == 0 || cold.Calls == 0 || way == strict && hot.Calls == 0 || way == asynchronous && hot.Calls >= hot.Decisions {
					t.Errorf("%s: hot %+v, cold %+v", wayNames[way], hot, cold)
				}
			}
			if len(o.Exact) != 2*2*3 {
				t.Errorf("%d rows", len(o.Exact))
			}
			for _, e := range o.Exact {
				if e.Requests == 0 || e.Admitted == 0 || e.Admitted > e.Requests || e.Strict == 0 || e.Held == 0 {
					t.Errorf("got %+v", e)
				}
			}
			for _, want := range []string{"hot key, async", "shifting", "| bar"} {
				if text := o.Markdown(); !strings.Contains(text, want) {
					t.Errorf("%q is missing in\n%s", want, text)
				}
			}
		})
	}
}

// TestWeigh: more than the limit is told, and not more than that is none.
func TestWeigh(t *testing.T) {
	plan := Plan{Rate: 10}
	var even, burst []letIn
	for i := range int64(100) {
		even = append(even, letIn{1e6 + i*100_000})
		burst = append(burst, letIn{1e6 + i})
	}
	for i, want := range []float64{90, 50} {
		e := Exact{Limit: limits(plan)[i]}
		if e.weigh(even, 10*time.Second); e.Excess > 0 {
			t.Errorf("%s: %v too many of an even stream", e.Limit.Algorithm, e.Excess)
		}
		if e.weigh(burst, time.Second); e.Excess < want-1 || e.Excess > want {
			t.Errorf("%s: %v too many of a burst, want %v", e.Limit.Algorithm, e.Excess, want)
		}
	}
}
