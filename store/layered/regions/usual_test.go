//go:build !race

package regions_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// usual is the usual design: each region counts for itself, publishes its counter every second, and
// adds what it has last heard of the others.
type usual struct {
	own   []passage
	heard [3][]passage
}

func inWindow(all []passage, now time.Time, period time.Duration) (n int64) {
	for _, p := range all {
		if now.Sub(p.at) < period {
			n += p.units
		}
	}
	return n
}

// TestUsualDesign holds the usual design to the same oracle, for comparison, while each region is
// asked for the whole limit, and while the lines are cut.
func TestUsualDesign(t *testing.T) {
	limit := headgate.Sliding(100, 10*time.Second)
	for name, cut := range map[string]bool{"connected": false, "cut off": true} {
		var regions [3]usual
		w := world{t: t}
		now := time.Unix(1_700_000_000, 0)
		for step := range 6000 { // of 10 ms
			now = now.Add(10 * time.Millisecond)
			for i := range regions {
				r := &regions[i]
				sum := inWindow(r.own, now, limit.Period)
				for j := range r.heard {
					sum += inWindow(r.heard[j], now, limit.Period)
				}
				if step%2 == 0 && sum < limit.Count { // 50 requests a second
					r.own = append(r.own, passage{now, 1})
					w.all = append(w.all, passage{now, 1})
				}
			}
			if step%100 == 0 && !(cut && step > 2000) {
				for i := range regions {
					for j := range regions {
						if i != j {
							regions[j].heard[i] = regions[i].own // The line takes no time at all.
						}
					}
				}
			}
		}
		over := w.over(&limit)
		t.Logf("%s: some window has %.0f units too many, of %d", name, over, limit.Count)
		if over == 0 {
			t.Errorf("%s: nothing was admitted too much: the comparison says nothing", name)
		}
	}
}
