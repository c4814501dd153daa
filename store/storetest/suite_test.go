package storetest_test

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/storetest"
)

func TestModel(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, clock func() int64) headgate.Store { return storetest.NewModel(clock) })
}
