package algorithm

import (
	"time"

	"github.com/headgate/headgate"
)

// Micros is a length of time in microseconds. A point in time is a [headgate.Instant], and a number
// of units an int64, so that the compiler tells the three from one another.
type Micros int64

// longest is the longest time that a decision tells: somewhat over 100 years, within the range of a
// [time.Duration].
const longest = Micros(headgate.MaxRefill/time.Microsecond) + 1

// Duration returns m as a duration of at most longest, somewhat over 100 years.
func (m Micros) Duration() time.Duration {
	return time.Duration(min(m, longest)) * time.Microsecond
}

// periodOf returns the period of a limit.
func periodOf(l *headgate.Limit) Micros { return Micros(l.Micros()) }

// plus returns the instant that is m after t.
func plus(t headgate.Instant, m Micros) headgate.Instant { return t + headgate.Instant(m) }

// minus returns how long t is after u.
func minus(t, u headgate.Instant) Micros { return Micros(t - u) }
