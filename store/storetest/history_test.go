package storetest_test

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

func TestHistoriesOnModelAndOracle(t *testing.T) {
	storetest.Histories(t, func(_ testing.TB, clock func() int64) headgate.Store {
		return storetest.NewModel(clock)
	}, 1, 300, 400)
}

func TestHistoriesOnMemory(t *testing.T) {
	storetest.Histories(t, func(_ testing.TB, clock func() int64) headgate.Store {
		return memory.New(memory.WithClock(clock))
	}, 2, 300, 400)
}
