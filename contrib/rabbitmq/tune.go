package rabbitmq

import (
	"math"
	"time"
)

// window is what a Consumer has seen since it last looked at its prefetch.
type window struct {
	length time.Duration
	// done is how many messages were done.
	done int
	// busy is the time of all workers together, and waiting that of all messages that were
	// here and could not begin, for want of a worker or of the gate.
	busy, waiting time.Duration
	// ready is how many messages wait in the queue at the end.
	ready int
	// roundTrip is how long the broker takes to answer.
	roundTrip time.Duration
	// size is that of a body on average, in bytes; 0 if there was none.
	size int64
}

// per is how many there were on average of what took so much time together.
func (w *window) per(together time.Duration) float64 {
	return together.Seconds() / w.length.Seconds()
}

// rate is how many messages were done in a second.
func (w *window) rate() float64 { return float64(w.done) / w.length.Seconds() }

// tuner finds the prefetch. Who is starved gets twice as much at once. Who needs less than
// half as much for a while gets less: others may want it.
type tuner struct {
	config  *Prefetch
	workers int
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
	return &tuner{config: config, workers: workers, now: min(max(workers, config.Min), config.Max)}
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
	if w.length <= 0 {
		return t.now
	}
	need := t.need(w)
	switch {
	case t.starved(w):
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

// starved reports whether workers are free, and messages are there, and it is the prefetch
// that stands between them: nearly as many as that are handled or on their way between here
// and the broker, as acknowledgements or as what comes in their place.
func (t *tuner) starved(w window) bool {
	const free, nearly, few = 0.9, 0.7, 0.1
	underway := w.per(w.busy) + w.rate()*w.roundTrip.Seconds()
	return w.ready > 0 && w.per(w.busy) < free*float64(t.workers) &&
		w.per(w.waiting) < few*float64(t.now) && underway >= nearly*float64(t.now)
}

// need is how many messages are handled at a time, and during two round trips: the one of
// the acknowledgement and the one in which what it makes room for comes, which may overlap
// for several but never for one.
func (t *tuner) need(w window) int {
	return int(math.Ceil(w.per(w.busy)+w.rate()*(2*w.roundTrip+slack).Seconds())) + 1
}
