//go:build race

package simulate_test

import (
	"testing"
	"time"
)

// Under the race detector a second of a scenario takes five times as long to simulate, and
// the detector has seen all code after a few of them. It is too short for the bars: `make
// test` runs these tests without the detector as well, at full length.
const (
	runs    = 1
	changes = 1
	longest = time.Second
	settled = time.Second
)

// subjects are one, which has all parts.
var subjects = []subject{{queue: true}}

// missed notes that a bar was not met, which one that short need not meet.
func missed(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
}
