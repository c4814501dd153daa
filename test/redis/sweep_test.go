package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestSweepPassesOver: an expired reservation that cannot be read does not hold up
// those behind it.
func TestSweepPassesOver(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		clock := storetest.NewClock(storetest.Epoch)
		store := stores.Open(t, dial(t, s), clock.Now)
		checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.Sliding(10, time.Hour)), Key: "k", Cost: 4, GiveBack: true}}
		for _, id := range []string{"first", "second"} {
			if _, _, err := store.Reserve(t.Context(), headgate.Terms{ID: id, For: time.Second}, checks, nil); err != nil {
				t.Fatal(err)
			}
			clock.Add(time.Millisecond)
		}
		if _, err := s.Do(t.Context(), "SET", store.Prefix()+" id first", "not a note"); err != nil {
			t.Fatal(err)
		}
		clock.Add(2 * time.Second)
		if err := store.Sweep(t.Context()); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("the sweep says %v, want that there is a note that cannot be read", err)
		}
		d, err := store.Take(t.Context(), headgate.OpPeek, checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d[0].Remaining != 6 {
			t.Errorf("%d remain, want 6: the second reservation has expired", d[0].Remaining)
		}
	})
}
