package load

import (
	"fmt"
	"math"
	"time"
)

// Shape says when the requests of one measurement are due.
type Shape struct {
	// Rate is how many requests are sent per second. If the rate changes evenly, To is the rate at
	// the end; zero means Rate.
	Rate, To float64
	// For is how long requests are sent.
	For time.Duration
	// Recorded are the requests of a log, in order of time. They replace a rate.
	Recorded []Arrival
}

// Arrival is one request of a log.
type Arrival struct {
	// At is when the request is due, counted from the beginning.
	At time.Duration
	// Target is the index of its target in [Options.Targets].
	Target int32
}

// The bounds of a [Shape].
const (
	MinRate = 0.01
	MaxRate = 1_000_000
	MaxFor  = 24 * time.Hour
)

// Check returns an error that says what is wrong with the shape.
func (s *Shape) Check() error {
	to := s.to()
	switch {
	case len(s.Recorded) > 0:
		return nil
	case !(s.Rate >= MinRate && s.Rate <= MaxRate):
		return fmt.Errorf("headgate: the rate is %g requests a second, must be %g to %d", s.Rate, MinRate, MaxRate)
	case !(to >= MinRate && to <= MaxRate):
		return fmt.Errorf("headgate: the rate at the end is %g requests a second, must be %g to %d", to, MinRate, MaxRate)
	case s.For <= 0 || s.For > MaxFor:
		return fmt.Errorf("headgate: requests are sent for %v, must be more than 0s and at most %v", s.For, MaxFor)
	case s.count() == 0:
		return fmt.Errorf("headgate: %g requests a second for %v are none", s.Rate, s.For)
	}
	return nil
}

func (s *Shape) to() float64 {
	if s.To == 0 {
		return s.Rate
	}
	return s.To
}

// count is how many requests there are.
func (s *Shape) count() int64 {
	if len(s.Recorded) > 0 {
		return int64(len(s.Recorded))
	}
	// A product such as 0.1 × 30 may be slightly below its true value.
	return int64((s.Rate+s.to())/2*s.For.Seconds() + 1e-6)
}

// due returns when request i is due, counted from the beginning. After the time t, a t + k t²/2
// requests are due, where a is the rate at the beginning, and k its growth per second.
func (s *Shape) due(i int64) time.Duration {
	if len(s.Recorded) > 0 {
		return s.Recorded[i].At
	}
	a, n := s.Rate, float64(i)
	k := (s.to() - a) / s.For.Seconds()
	// Where the rate falls, rounding must not put the last one below zero.
	root := math.Sqrt(max(a*a+2*k*n, 0))
	return time.Duration(2 * n / (a + root) * float64(time.Second))
}

// length is how long requests are due.
func (s *Shape) length() time.Duration {
	if n := len(s.Recorded); n > 0 {
		return max(s.Recorded[n-1].At, time.Millisecond)
	}
	return s.For
}
