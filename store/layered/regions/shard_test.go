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
		both.Go(func() { s.derive(k, rule, 0) })
		both.Go(func() { s.divide(&board{Own: division{Percent: 10, Regions: 2}}) })
		both.Wait()
		if loc := k.local.Load(); loc != nil && loc.rule.Limits()[0].Capacity() > 10 {
			t.Fatalf("%d units of a floor of 10 are in use", loc.rule.Limits()[0].Capacity())
		}
	}
}
