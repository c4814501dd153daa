package memory_test

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, clock func() int64) headgate.Store {
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
