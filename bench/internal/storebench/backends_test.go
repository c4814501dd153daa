package storebench

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/store/memory"
)

func TestAskBackend(t *testing.T) {
	plan := measure.Plan{Rounds: 1, Slice: 20 * time.Millisecond, Callers: 3, Keys: 10}
	rows := measure.Rows{{Name: "Redis"}, {Name: "PostgreSQL"}}
	err := plan.Turns(t.Context(), new(measure.Work), rows, []int{one, spread, hotKey}, func(_, condition, _ int) (measure.Sample, error) {
		return askBackend(t.Context(), memory.New(), plan, condition)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range []int{one, spread, hotKey} {
		if s := rows[1].Samples[condition][0]; s.Done == 0 || s.P50() > s.P99() {
			t.Errorf("condition %d: %+v", condition, s)
		}
	}
	holds(t, backendsText(plan, rows, "redis-server 7", "postgres 15"), "redis-server 7, postgres 15", "| PostgreSQL", "1.00 ×")
}

// denying is a store that is always wrong.
type denying struct{ headgate.Store }

func (denying) Take(_ context.Context, _ headgate.Op, _ []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return append(dst, headgate.Decision{}), nil
}

// TestAskBackendThatDenies: a denial ends the measurement.
func TestAskBackendThatDenies(t *testing.T) {
	plan := measure.Plan{Slice: time.Minute, Callers: 2, Keys: 1}
	if _, err := askBackend(t.Context(), denying{memory.New()}, plan, spread); err == nil {
		t.Error("a denial went unnoticed")
	}
}
