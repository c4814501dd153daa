package rabbitmq

import (
	"math"
	"time"
)

// window is what a Consumer has measured since it last adjusted its prefetch.
type window struct {
	length time.Duration
	// done is how many messages were done.
	done int
	// busy is the total time of all workers. waiting is the total time of all messages that were
	// here and could not begin, because of a lack of workers or because of the gate.
	busy, waiting time.Duration
	// ready is how many messages wait in the queue at the end of the window.
	ready int
	// roundTrip is how long the broker takes to answer.
	roundTrip time.Duration
	// size is the average size of a body in bytes; 0 if there was none.
	size int64
}

// per returns how many things there were at a time on average, given their total time.
func (w *window) per(together time.Duration) float64 {
	return together.Seconds() / w.length.Seconds()
}

// rate returns how many messages were done per second.
func (w *window) rate() float64 { return float64(w.done) / w.length.Seconds() }

// tuner determines the prefetch. If workers are starved, it doubles at once. If less than half of
// it was needed for a while, it shrinks, because other consumers may need the messages.
type tuner struct {
	config  *Prefetch
	workers int
	now     int
	spare   int // windows in a row in which less than half was needed
	steady  int // windows until the prefetch may shrink again
	average int64
}

const (
	// spareWindows is how many windows in a row must need less before the prefetch shrinks.
	// steadyWindows is how many windows pass after it was too small until it may shrink again.
	spareWindows  = 5
	steadyWindows = 60
	// slack is how long the processes on both sides may take in addition to the network.
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
		t.average = max(w.size, t.average-t.average/8) // large messages are likely to come again
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

// starved reports whether workers are free and messages are there, but the prefetch is too small.
// That is so if nearly all of the prefetch is being handled, or is under way between here and the
// broker, as acknowledgements or as the messages that replace them.
func (t *tuner) starved(w window) bool {
	const free, nearly, few = 0.9, 0.7, 0.1
	underway := w.per(w.busy) + w.rate()*w.roundTrip.Seconds()
	return w.ready > 0 && w.per(w.busy) < free*float64(t.workers) &&
		w.per(w.waiting) < few*float64(t.now) && underway >= nearly*float64(t.now)
}

// need returns how many messages are handled at a time and during two round trips. One round trip
// is for the acknowledgement, and one for the message that replaces it. They may overlap for
// several messages, but not for one.
func (t *tuner) need(w window) int {
	return int(math.Ceil(w.per(w.busy)+w.rate()*(2*w.roundTrip+slack).Seconds())) + 1
}
