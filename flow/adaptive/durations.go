package adaptive

import (
	"math"
	"slices"
	"time"
)

// durations has how long the latest work took, and finds what is typical of it.
type durations struct {
	ring [512]time.Duration
	n    int // how many there were since the last clear
}

// enough is how many pieces of work say how long long work takes if all of it takes the same time. It
// has to be more if little of the work takes most of the time.
const enough = 24

// typical is how long short and long work takes.
type typical struct {
	short float64 // the quickest tenth of the work takes at most that
	long  float64 // half of the time is spent on work that takes at least that
}

func (d *durations) clear() { d.n = 0 }

func (d *durations) add(took time.Duration) {
	d.ring[d.n%len(d.ring)] = took
	d.n++
}

// typical returns how long short and long work takes, and the standard errors of that, as shares of it.
// The latest n durations say what short work takes. Long work may be rarer: back is how many durations
// say what it takes. Without durations, all is zero.
func (d *durations) typical(n int) (at, err typical, back int) {
	kept := min(d.n, len(d.ring))
	if kept == 0 {
		return at, err, 0
	}
	sum, squares := 0.0, 0.0
	for _, took := range d.ring[:kept] {
		sum += float64(took)
		squares += float64(took) * float64(took)
	}
	back = min(int(enough*float64(kept)*squares/(sum*sum))+1, kept)
	at.short, err.short = quantile(d.latest(n), 0.1)
	at.long, err.long = middle(d.latest(back))
	return at, err, back
}

// latest returns a sorted copy of the latest n durations, or of all that are kept.
func (d *durations) latest(n int) []time.Duration {
	some := make([]time.Duration, min(n, d.n, len(d.ring)))
	for i := range some {
		some[i] = d.ring[(d.n-1-i)%len(d.ring)]
	}
	slices.Sort(some)
	return some
}

// middle returns the duration above which half of the sum of the durations lies, and its relative
// standard error.
func middle(all []time.Duration) (d, err float64) {
	sum, squares := 0.0, 0.0
	for _, took := range all {
		sum += float64(took)
		squares += float64(took) * float64(took)
	}
	value := func(share float64) float64 {
		left := share * sum
		for _, took := range all {
			if left -= float64(took); left <= 0 {
				return float64(took)
			}
		}
		return float64(all[len(all)-1])
	}
	off := math.Sqrt(squares) / sum / 2
	wide := min(2*off, 0.5) // few durations lie within off
	d = value(0.5)
	return d, (value(0.5+wide) - value(0.5-wide)) / 2 / d * off / wide
}

// quantile returns the duration that the given share of them does not exceed, and its relative standard
// error. They are sorted.
func quantile(all []time.Duration, share float64) (d, err float64) {
	if len(all) == 0 {
		return 0, 0
	}
	last := float64(len(all) - 1)
	value := func(at float64) float64 {
		at = min(max(at, 0), last)
		i := int(at)
		v := float64(all[i])
		if i+1 < len(all) {
			v += (at - float64(i)) * float64(all[i+1]-all[i])
		}
		return v
	}
	at, off := share*last, math.Sqrt(share*(1-share)*(last+1))
	d = value(at)
	return d, (value(at+off) - value(at-off)) / 2 / d
}
