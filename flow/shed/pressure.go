package shed

import (
	"time"

	"github.com/headgate/headgate/flow"
)

// Signal says how short the process is of something. A [Gate] reads it now and then,
// from one goroutine at a time.
type Signal interface {
	// Pressure is 0 if there is enough, and 1 if all but the most important work has
	// to go. In between it sheds the classes one after the other: Sheddable from 0 to
	// a third, SheddablePlus to two thirds, Critical to 1. It never sheds CriticalPlus.
	Pressure() (float64, error)
}

// million is a pressure of 1 in the unit in which it is kept.
const million = 1_000_000

// sample reads the signals if it is time for that, and nobody else is at it.
func (g *Gate) sample(now time.Duration) {
	last := g.sampled.Load()
	if len(g.config.Signals) == 0 || now.Nanoseconds()-last < g.config.Sample.Nanoseconds() ||
		!g.sampled.CompareAndSwap(last, now.Nanoseconds()) {
		return
	}
	most := 0.0
	for _, s := range g.config.Signals {
		pressure, err := s.Pressure()
		if err != nil {
			if g.config.SignalFailed != nil {
				g.config.SignalFailed(err)
			}
			continue
		}
		most = max(most, pressure)
	}
	g.pressure.Store(uint64(min(most, 1) * million))
}

// Pressure is that of the signal that said most when they were read last, 0 to 1.
func (g *Gate) Pressure() float64 { return float64(g.pressure.Load()) / million }

// pressed reports whether a request of a class has to go for want of resources.
func (g *Gate) pressed(rank int) bool {
	p := g.Pressure()
	if p == 0 || rank == flow.CriticalPlus.Rank() {
		return false
	}
	// The share of the class that goes: 0 below its third, 1 above it.
	share := 3*p - float64(flow.Classes-1-rank)
	return share > 0 && g.random.Float64() < share
}

// between is where v stands between low and high, 0 to 1.
func between(v, low, high float64) float64 {
	return min(max((v-low)/(high-low), 0), 1)
}
