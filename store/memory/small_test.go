package memory_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// small makes the smallest store there is, with a clock that the test sets.
func small() (*memory.Store, *storetest.Clock) {
	clock := storetest.NewClock(storetest.Epoch)
	return memory.New(memory.Clock(clock.Now), memory.MaxBytes(memory.MinMaxBytes)), clock
}

func take(t *testing.T, s headgate.Store, op headgate.Op, checks ...headgate.Check) headgate.Verdict {
	t.Helper()
	decisions, err := s.Take(context.Background(), op, checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	return headgate.NewVerdict(decisions)
}
