package limiterbench

import (
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
)

// TestSizes: every size is measured, and a request for several limits asks for all of them.
func TestSizes(t *testing.T) {
	w := &measure.Work{Redis: started(t, "redis-server")}
	p := sizesPlan{
		keys: []int{100, 1000}, limits: []int{1, 3}, instances: []int{1, 2},
		memory: measure.Plan{Rounds: 1, Slice: time.Millisecond, Keys: 100},
		redis:  redisPlan{Plan: measure.Plan{Rounds: 2, Slice: 20 * time.Millisecond, Keys: 1000}, callers: []int{4}},
	}
	keys, err := p.byKeys(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	local, remote, err := p.byLimits(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	instances, err := p.byInstances(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rows   measure.Rows
		sizes  []int
		rounds int
	}{{keys, p.keys, 1}, {local, p.limits, 1}, {remote, p.limits, 2}, {instances, p.instances, 2}} {
		for _, r := range c.rows {
			for _, n := range c.sizes {
				if got := r.Samples[n]; len(got) != c.rounds || got[0].Done == 0 {
					t.Errorf("%s, %d: got %+v, want %d samples", r.Name, n, got, c.rounds)
				}
			}
		}
	}
	of, further, err := request{limits: 3, apart: true}.rules(strictLimits)
	if err != nil || len(further) != 2 || len(of[0].Limits()) != 1 {
		t.Errorf("got %v, %v, %v, want one rule and two further ones", of, further, err)
	}
	if of, further, err = (request{limits: 3}).rules(strictLimits); err != nil || len(further) != 0 || len(of[0].Limits()) != 3 {
		t.Errorf("got %v, %v, %v, want one rule of three limits", of, further, err)
	}
}
