package shed

import (
	"time"

	"github.com/headgate/headgate/flow"
)

// Signal reports how short the process is of a resource. A [Gate] reads it regularly, from one
// goroutine at a time.
type Signal interface {
	// Pressure returns 0 if there is enough, and 1 if all but the most important work has to be
	// shed. In between, classes are shed one after the other: Sheddable from 0 to 1/3,
	// SheddablePlus from 1/3 to 2/3, and Critical from 2/3 to 1. CriticalPlus is never shed.
	Pressure() (float64, error)
}

// million is a pressure of 1 in the unit of Gate.pressure.
const million = 1_000_000

// sample reads the signals if it is time, unless another goroutine does. A signal may take longer
// than the time between two readings.
func (g *Gate) sample(now time.Duration) {
	due := func() bool { return now.Nanoseconds()-g.sampled.Load() >= g.config.Sample.Nanoseconds() }
	if len(g.config.Signals) == 0 || !due() || !g.sampling.TryLock() {
		return
	}
	defer g.sampling.Unlock()
	if !due() {
		return
	}
	g.sampled.Store(now.Nanoseconds())
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

// Pressure returns the highest pressure of all signals when they were last read, 0 to 1.
func (g *Gate) Pressure() float64 { return float64(g.pressure.Load()) / million }

// pressed reports whether to shed a request of a class because of pressure.
func (g *Gate) pressed(rank int) bool {
	p := g.Pressure()
	if p == 0 || rank == flow.CriticalPlus.Rank() {
		return false
	}
	// The share of the class that is shed: 0 below its third of the pressure, and 1 above it.
	share := 3*p - float64(flow.Classes-1-rank)
	return share > 0 && g.random.Float64() < share
}

// between returns the position of v between low and high, 0 to 1.
func between(v, low, high float64) float64 {
	return min(max((v-low)/(high-low), 0), 1)
}
