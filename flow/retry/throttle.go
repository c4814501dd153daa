package retry

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Throttle fails calls to somebody who hardly answers, with a probability that grows with
// the part of the calls that were not answered of late (see the SRE book, "Handling
// Overload"). Some calls always go through, and find out when the other side is well again.
// It is safe for concurrent use. The zero Throttle has seen no calls.
type Throttle struct {
	mu    sync.Mutex // guards what follows
	tries decaying   // attempts that were made or refused
	good  decaying   // attempts that were answered
}

const (
	// ratio is how many tries there may be for each that is answered, before calls are
	// refused, and enough how many tries that takes at least.
	ratio, enough = 2, 20
	// halfLife is after how long a try counts half.
	halfLife = 30 * time.Second
)

// Refuses reports whether a call that begins now is to fail without being sent.
func (t *Throttle) Refuses(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	tries, good := t.tries.at(now), t.good.at(now)
	if tries < enough || rand.Float64() >= (tries-ratio*good)/(tries+1) {
		return false
	}
	t.tries.add(now, 1)
	return true
}

// Tried notes an attempt, and whether it was answered.
func (t *Throttle) Tried(now time.Time, answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tries.add(now, 1)
	if answered {
		t.good.add(now, 1)
	}
}

// decaying is a number of which half is forgotten in each half-life.
type decaying struct {
	value float64
	since time.Time
}

func (d *decaying) at(now time.Time) float64 {
	for steps := 0; now.Sub(d.since) >= halfLife && d.value > 0; steps++ {
		if steps == 32 {
			d.value = 0
			break
		}
		d.value, d.since = d.value/2, d.since.Add(halfLife)
	}
	return d.value
}

func (d *decaying) add(now time.Time, v float64) {
	if d.at(now) == 0 {
		d.since = now
	}
	d.value += v
}
