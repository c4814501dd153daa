package denycache

import "time"

// SetClock has the layer take the time from a clock, in microseconds.
func (d *Layer) SetClock(clock func() int64) {
	d.table.now = func() time.Duration { return time.Duration(clock()) * time.Microsecond }
}
