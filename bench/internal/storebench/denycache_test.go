package storebench

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
)

// TestDenials goes through everything once. Figures of so short a time mean nothing, but
// who is asked does.
func TestDenials(t *testing.T) {
	withRedis(t, func(t *testing.T, w *measure.Work) {
		var rows measure.Rows
		eventually(t, w, 200*time.Millisecond, func(slice time.Duration) (wrong string) {
			var err error
			if rows, err = denials(t.Context(), w, measure.Plan{Rounds: 1, Slice: slice, Callers: 8, Keys: 100}); err != nil {
				t.Fatal(err)
			}
			for way := range rows {
				flood, cold := rows[way].Samples[flood][0], rows[way].Samples[unseen][0]
				if flood.Done == 0 || cold.Calls == 0 || way != cached && flood.Calls == 0 || way == cached && flood.Calls >= int64(flood.Done) {
					wrong = fmt.Sprintf("%s: flood %+v, cold %+v", rows[way].Name, flood, cold)
				}
			}
			return wrong
		})
		holds(t, denialsText("", measure.Plan{}, rows), "one denied key, calls combined, with a deny cache", "cold keys, one call each", "Redis calls a decision")
	}, "redis-server", "valkey-server")
}
