package storebench

import (
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
)

// TestOutage goes through everything once, on both kinds of server. Figures of so
// short a time mean nothing, but who decides does.
func TestOutage(t *testing.T) {
	withRedis(t, func(t *testing.T, w *measure.Work) {
		plan := outagePlan{
			measure.Plan{Rounds: 1, Slice: 50 * time.Millisecond, Callers: 8, Keys: 100}, 1000, time.Second, 300 * time.Millisecond,
		}
		rows, err := well(t.Context(), w, plan.Plan)
		if err != nil {
			t.Fatal(err)
		}
		hangs, err := hangAll(t.Context(), w, plan)
		if err != nil {
			t.Fatal(err)
		}
		if len(hangs) != len(ways) || len(rows) != len(ways) {
			t.Fatalf("%d and %d ways", len(rows), len(hangs))
		}
		for i, h := range hangs {
			switch all := h.all.TotalCount(); {
			case all < int64(h.lasts/time.Millisecond)/2:
				t.Errorf("%s: %d requests in %v", h.name, all, h.lasts)
			case i < 2 && h.undecided == 0:
				t.Errorf("%s: all requests were decided", h.name)
			case i == 2 && h.undecided != 0:
				t.Errorf("%s: %d of %d requests without a decision", h.name, h.undecided, all)
			}
		}
		holds(t, outageText("", plan, rows, hangs), ways[0].name, ways[1].name, ways[2].name, "bars are met")
	}, "redis-server", "valkey-server")
}
