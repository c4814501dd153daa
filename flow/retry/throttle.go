package retry

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Throttle fails calls to a service that hardly answers. The probability grows with the share of
// recent calls that were not answered (see the SRE book, "Handling Overload"). Some calls are
// always sent, and find out when the service has recovered. A Throttle is safe for concurrent use.
// The zero Throttle has seen no calls.
type Throttle struct {
	mu    sync.Mutex // guards what follows
	tries decaying   // attempts that were made or refused
	good  decaying   // attempts that were answered
}

const (
	// ratio is how many attempts there may be for each answered one before calls are refused.
	// enough is the minimum number of attempts for that.
	ratio, enough = 2, 20
	// halfLife is the time after which an attempt counts half.
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

// Tried records an attempt, and whether it was answered.
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
