package adaptive

import (
	"math"
	"slices"
	"time"
)

// quick finds how long the quickest work of a window takes. If there is too much of it, every
// second duration is left out, then every fourth, and so on.
type quick struct {
	durations [256]time.Duration
	n         int
	skip      int // how many durations are left out for each one that is kept
	skipped   int
}

func (q *quick) clear() { q.n, q.skip, q.skipped = 0, 0, 0 }

func (q *quick) add(d time.Duration) {
	if q.skipped < q.skip {
		q.skipped++
		return
	}
	if q.skipped = 0; q.n == len(q.durations) {
		for i := range q.n / 2 {
			q.durations[i] = q.durations[2*i]
		}
		q.n /= 2
		q.skip = 2*q.skip + 1
	}
	q.durations[q.n] = d
	q.n++
}

// tenth returns how long the quickest tenth took at most, and the standard error of that.
func (q *quick) tenth() (d, blur float64) {
	if q.n == 0 {
		return 0, 0
	}
	sorted := q.durations[:q.n]
	slices.Sort(sorted)
	n := float64(q.n)
	at := 0.1 * (n - 1)
	off := 0.3 * math.Sqrt(n)
	value := func(at float64) float64 {
		at = min(max(at, 0), n-1)
		i := int(at)
		v := float64(sorted[i])
		if i+1 < q.n {
			v += (at - float64(i)) * float64(sorted[i+1]-sorted[i])
		}
		return v
	}
	return value(at), (value(at+off) - value(at-off)) / 2
}
