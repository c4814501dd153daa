package memory_test

import (
	"testing"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

func TestDocuments(t *testing.T) {
	storetest.RunDocuments(t, func(_ testing.TB, clock func() int64) store.Documents {
		return memory.New(memory.Clock(clock))
	})
}
