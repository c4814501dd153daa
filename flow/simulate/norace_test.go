//go:build !race

package simulate_test

import (
	"math"
	"testing"
	"time"
)

const (
	// runs is how often a scenario runs, each time with another seed.
	runs = 2
	// changes is how many runs the medians of TestCapacityChanges are of.
	changes = 15
	// longest is how long a scenario goes on at most after what it measures has begun.
	longest = time.Duration(math.MaxInt64)
	// settled is when at the latest a scenario begins to measure under a load that does not change.
	settled = time.Duration(math.MaxInt64)
)

// subjects are all that are held to the bars.
var subjects = []subject{{}, {initial: 100}, {queue: true}}

// missed fails the test: a bar was not met.
func missed(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Errorf(format, args...)
}
