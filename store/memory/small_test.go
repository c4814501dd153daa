package memory_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// small makes the smallest store there is, with a clock that the test sets.
func small() (*memory.Store, *storetest.Clock) { return smallBy(memory.Clock) }

// smallBy is small with a clock that may step back, or one that never does, under which counters are
// kept as Words.
func smallBy(clocked func(micros func() int64) memory.Option) (*memory.Store, *storetest.Clock) {
	clock := storetest.NewClock(storetest.Epoch)
	return memory.New(clocked(clock.Now), memory.MaxBytes(memory.MinMaxBytes)), clock
}

// clocks are what smallBy is called with.
var clocks = map[string]func(micros func() int64) memory.Option{"states": memory.Clock, "Words": memory.SteadyClock}

func take(t *testing.T, s headgate.Store, op headgate.Op, checks ...headgate.Check) headgate.Verdict {
	t.Helper()
	decisions, err := s.Take(context.Background(), op, checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	return headgate.NewVerdict(decisions)
}
