package rabbitmq

import (
	"math"
	"time"
)

// window is what a Consumer has seen since it last looked at its prefetch.
type window struct {
	length time.Duration
	// done is how many messages were done, and busy the handling time of all workers
	// together.
	done int
	busy time.Duration
	// starved is how often there was a worker without work while the broker could send no
	// more, for the prefetch.
	starved int
	// roundTrip is how long the broker takes to answer.
	roundTrip time.Duration
	// size is that of a body on average, in bytes; 0 if there was none.
	size int64
}

// tuner finds the prefetch. Who needs more is starved, and gets twice as much at once. Who
// needs less than half as much for a while gets less: others may want it.
type tuner struct {
	config  *Prefetch
	now     int
	spare   int // for how many windows less than half was needed
	steady  int // windows until it may become less again
	average int64
}

const (
	// spareWindows is for how long less must be needed, and steadyWindows for how long a
	// prefetch that was too small for somebody is not tried again.
	spareWindows  = 5
	steadyWindows = 60
	// slack is how long the processes on either side may take besides the network.
	slack = 5 * time.Millisecond
)

func newTuner(config *Prefetch, workers int) *tuner {
	return &tuner{config: config, now: min(max(workers, config.Min), config.Max)}
}

// next returns the prefetch after a window.
func (t *tuner) next(w window) int {
	if w.size > 0 {
		if t.average == 0 {
			t.average = w.size
		}
		t.average = max(w.size, t.average-t.average/8) // what was large comes again
	}
	most := t.config.Max
	if t.average > 0 {
		most = int(min(max(t.config.MaxBytes/t.average, int64(t.config.Min)), int64(most)))
	}
	t.steady = max(t.steady-1, 0)
	need := t.need(w)
	switch {
	case w.starved > w.done/10:
		t.now, t.spare, t.steady = 2*t.now, 0, steadyWindows
	case w.done == 0 || need > t.now/2 || t.steady > 0:
		t.spare = 0
	default:
		if t.spare++; t.spare >= spareWindows {
			t.now, t.spare = need+need/2, 0
		}
	}
	t.now = min(max(t.now, t.config.Min), most)
	return t.now
}

// need is how many messages are handled at a time, and during two round trips: the one of
// the acknowledgement and the one in which what it makes room for comes, which may overlap
// for several but never for one.
func (t *tuner) need(w window) int {
	if w.length <= 0 {
		return t.now
	}
	at := w.busy.Seconds() / w.length.Seconds()
	rate := float64(w.done) / w.length.Seconds()
	return int(math.Ceil(at+rate*(2*w.roundTrip+slack).Seconds())) + 1
}
