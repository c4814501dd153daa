package workload

import "time"

// Class says which of two limits a key is held to.
type Class uint8

const (
	// Wide keys are always admitted.
	Wide Class = iota
	// Narrow keys are always denied, once they have been asked about once.
	Narrow

	classes
)

// String returns "wide" or "narrow".
func (c Class) String() string {
	if c == Narrow {
		return "narrow"
	}
	return "wide"
}

// Limit is one bound in the words that all contenders know: Count units may
// pass at once, and come back over Period. Whether they come back one by one or
// all together is the contender's algorithm.
type Limit struct {
	Count  int64
	Period time.Duration
}

// Interval is the time in which one unit comes back.
func (q Limit) Interval() time.Duration { return q.Period / time.Duration(q.Count) }

// Limits holds a limit for each [Class].
type Limits [classes]Limit
