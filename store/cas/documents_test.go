package cas_test

import (
	"testing"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/cas"
	"github.com/headgate/headgate/store/storetest"
)

func TestDocuments(t *testing.T) {
	storetest.RunDocuments(t, func(t testing.TB, clock func() int64) store.Documents {
		return newLedger(t, newFake(manyKeys), cas.Clock(clock))
	})
}
