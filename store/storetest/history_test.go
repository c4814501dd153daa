package storetest_test

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// length is how many steps a history has.
const length = 400

func TestHistoriesOnModelAndOracle(t *testing.T) {
	storetest.Histories(t, func(_ testing.TB, clock func() int64) headgate.Store {
		return storetest.NewModel(clock)
	}, 1, storetest.Steps(t, race.Fewer(40_000))/length, length)
}

func TestHistoriesOnMemory(t *testing.T) {
	storetest.Histories(t, func(_ testing.TB, clock func() int64) headgate.Store {
		return memory.New(memory.Clock(clock))
	}, 2, storetest.Steps(t, race.Fewer(40_000))/length, length)
}
