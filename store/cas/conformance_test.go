package cas_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/cas"
	"github.com/headgate/headgate/store/storetest"
)

const manyKeys = 128

func newLedger(t testing.TB, f *fake, options ...cas.Option) *cas.Ledger {
	t.Helper()
	l, err := cas.NewLedger(f, append([]cas.Option{cas.Timeout(30 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func maker(t testing.TB, clock func() int64) headgate.Store {
	return newLedger(t, newFake(manyKeys), cas.Clock(clock))
}

func TestConformance(t *testing.T) { storetest.Run(t, maker) }

// TestHistories holds the store against the model and the oracle.
func TestHistories(t *testing.T) {
	total := storetest.Steps(t, race.Fewer(8_000))
	const length = 300
	storetest.Histories(t, maker, 1, max(1, total/length), length)
}
