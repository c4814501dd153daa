package storebench

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
)

// TestLeases goes through everything once. Figures of so short a time mean nothing, but
// counts do.
func TestLeases(t *testing.T) {
	withRedis(t, func(t *testing.T, w *measure.Work) {
		plan := measure.Plan{Rounds: 2, Slice: 200 * time.Millisecond, Callers: 16, Keys: 2000}
		var rows measure.Rows
		var competed []measure.Sample
		eventually(t, w, plan.Slice, func(slice time.Duration) (wrong string) {
			plan.Slice = slice
			var err error
			if rows, competed, err = leases(t.Context(), w, plan); err != nil {
				t.Fatal(err)
			}
			for i := range plan.Rounds {
				strict, leased := rows[0].Samples[hot][i], rows[1].Samples[hot][i]
				if strict.Calls != int64(strict.Done) || wide.over(leased) != 0 {
					t.Errorf("hot: strict %+v, leased %+v", strict, leased)
				}
				if s := competed[i]; tight.over(s) != 0 || s.Admitted > s.Done {
					t.Errorf("tight: %+v", s)
				}
				if leased.Calls >= int64(leased.Done) || competed[i].Admitted == 0 {
					wrong = fmt.Sprintf("leased %+v, tight %+v", leased, competed[i])
				}
			}
			return wrong
		})
		holds(t, leaseText("", plan, rows, competed), "one hot key, leased", "none hot, strict", "bars are met")
	}, "redis-server")
}
