//go:build !race

package storetest_test

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/storetest"
)

// TestModel: the model is what it holds the stores to. Its lock is for the suite; big numbers take eight
// times as long under the race detector.
func TestModel(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, clock func() int64) headgate.Store { return storetest.NewModel(clock) })
}
