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

func TestHistoriesOnMemory(t *testing.T) {
	storetest.Histories(t, func(_ testing.TB, clock func() int64) headgate.Store {
		return memory.New(memory.Clock(clock))
	}, 2, storetest.Steps(t, race.Fewer(80_000))/length, length)
}
