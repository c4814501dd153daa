package chaos

import (
	"cmp"
	"slices"
	"time"
)

// Passed is an admission: it was made between two times.
type Passed struct{ Sent, Received time.Duration }

// Over is the most that was admitted, for certain, in any time beyond what a limit allows for a time of
// that length. It sorts the admissions.
func Over(all []Passed, allows func(time.Duration) float64) float64 {
	// Of those that were received by each time, how many were sent at or after each other time?
	slices.SortFunc(all, func(a, b Passed) int { return cmp.Compare(a.Received, b.Received) })
	var sent []time.Duration // in descending order
	over := 0.0
	for _, p := range all {
		at, _ := slices.BinarySearchFunc(sent, p.Sent, func(a, b time.Duration) int { return cmp.Compare(b, a) })
		sent = slices.Insert(sent, at, p.Sent)
		for n, from := range sent[at:] {
			over = max(over, float64(at+n+1)-allows(p.Received-from)-1e-6)
		}
	}
	return over
}

// Bucket is what a token bucket allows.
func Bucket(rate, burst float64) func(time.Duration) float64 {
	return func(d time.Duration) float64 { return burst + rate*d.Seconds() }
}

// Window is what a sliding window allows.
func Window(count float64, period time.Duration) func(time.Duration) float64 {
	return func(d time.Duration) float64 { return count * float64(1+d/period) }
}
