package memory_test

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestConformance runs the suite. Under the race detector it runs the vectors only: the detector
// sees the rest in TestConformanceWhenSmall, whose tables are also rebuilt meanwhile.
func TestConformance(t *testing.T) {
	run := storetest.Run
	if race.Enabled {
		run = storetest.RunVectors
	}
	run(t, func(_ testing.TB, clock func() int64) headgate.Store {
		return memory.New(memory.Clock(clock))
	})
}

// TestConformanceWhenSmall: the smallest store, whose tables grow and shrink all
// the time.
func TestConformanceWhenSmall(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, clock func() int64) headgate.Store {
		return memory.New(memory.Clock(clock), memory.MaxBytes(memory.MinMaxBytes))
	})
}
