package storebench

import (
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
)

// TestDenials goes through everything once. Figures of so short a time mean nothing, but
// who is asked does.
func TestDenials(t *testing.T) {
	withRedis(t, func(t *testing.T, w *measure.Work) {
		rows, err := denials(t.Context(), w, measure.Plan{Rounds: 1, Slice: 200 * time.Millisecond, Callers: 8, Keys: 100})
		if err != nil {
			t.Fatal(err)
		}
		for way := range rows {
			flood, cold := rows[way].Samples[flood][0], rows[way].Samples[unseen][0]
			if flood.Done == 0 || cold.Calls == 0 || way != cached && flood.Calls == 0 || way == cached && flood.Calls >= int64(flood.Done) {
				t.Errorf("%s: flood %+v, cold %+v", rows[way].Name, flood, cold)
			}
		}
		holds(t, denialsText("", measure.Plan{}, rows), "one denied key, calls combined, with a deny cache", "cold keys, one call each", "Redis calls a decision")
	}, "redis-server", "valkey-server")
}
