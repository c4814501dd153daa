package regions

import (
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// A request that comes while a smaller floor begins does not leave the larger one in force.
func TestFloorsWhileAsked(t *testing.T) {
	t.Parallel()
	rule := headgate.MustRule("r", headgate.PerMinute(100))
	s := &shard{layer: &Layer{options: *(&Options{Regions: []string{"a", "b"}}).withDefaults()}}
	for range 20_000 {
		k := new(key)
		s.keys = map[layer.Counter]*key{{}: k}
		s.floors.Store(newFloors(&s.layer.options, division{Percent: 50, Regions: 2}, nil))
		var both sync.WaitGroup
		both.Go(func() { s.derive(k, rule, 0, true) })
		both.Go(func() { s.divide(&board{Own: division{Percent: 10, Regions: 2}}) })
		both.Wait()
		if loc := k.local.Load(); loc != nil && loc.rule.Limits()[0].Capacity() > 10 {
			t.Fatalf("%d units of a floor of 10 are in use", loc.rule.Limits()[0].Capacity())
		}
	}
}

// A limit that is changed goes on with the same counter, however many units it has.
func TestPartKeepsTheCounter(t *testing.T) {
	t.Parallel()
	for _, counts := range [][2]int64{{1, 100}, {100, fineCount}, {fineCount + 1, 3_000_000}, {3_000_000, headgate.MaxCount}} {
		var slots [2]uint64
		for i, n := range counts {
			rule := headgate.MustRule("r", headgate.PerSecond(n))
			p, ok := part(&rule.Limits()[0], max(1, n/2))
			if !ok {
				t.Fatalf("half of %d a second is nothing", n)
			}
			slots[i] = like(rule, []headgate.Limit{p}).Limits()[0].Slot()
			if got, want := float64(p.Count)/p.Period.Seconds(), max(1, float64(n/2)); got > want || got < 0.999*want {
				t.Errorf("half of %d a second is %v", n, got)
			}
		}
		if slots[0] != slots[1] {
			t.Errorf("%d and %d a second have different counters", counts[0], counts[1])
		}
	}
}
