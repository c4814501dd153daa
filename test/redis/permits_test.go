package redis_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

func TestPermitsConform(t *testing.T) {
	histories := max(12, storetest.Steps(t, 0)/1000)
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		client := dial(t, s)
		storetest.RunPermits(t, histories, func(t testing.TB, clock func() int64) store.Permits {
			return stores.Open(t, client, clock)
		})
	})
}

// TestPermitsByTheServersClock: a lease ends by the server's clock, whatever this process
// believes, and nothing is left behind.
func TestPermitsByTheServersClock(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		t.Parallel()
		permits := stores.Open(t, dial(t, s), nil)
		before := time.Now()
		a, err := permits.Acquire(t.Context(), store.PermitRequest{Key: "k", Holder: "h", Limit: 1, TTL: 300 * time.Millisecond})
		if err != nil || !a.Granted() || a.Lease.Remaining != 300*time.Millisecond {
			t.Fatalf("%+v, %v", a, err)
		}
		stores.Until(t, "the lease ends", func() bool {
			h, err := permits.Holders(t.Context(), "k")
			return err == nil && len(h.Leases) == 0
		})
		if d := time.Since(before); d < 300*time.Millisecond {
			t.Errorf("it ends after %v", d)
		}
		stores.Until(t, "the key is gone", func() bool {
			time.Sleep(100 * time.Millisecond) // it takes ten seconds, and each question a connection
			n, err := s.Do(t.Context(), "DBSIZE")
			return err == nil && n == int64(0)
		})
		if d := time.Since(before); d < 9*time.Second {
			t.Errorf("the epoch is forgotten after %v", d)
		}
	})
}
