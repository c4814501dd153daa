package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

func TestPermitsConform(t *testing.T) {
	open := sharing(t, servers.StartPostgres(t).URL()+patient)
	storetest.RunPermits(t, max(12, storetest.Steps(t, 0)/1000), func(t testing.TB, clock func() int64) store.Permits { return open(t, clock) })
}

// TestPermitsByTheServersClock: a lease ends by the server's clock, and its row goes.
func TestPermitsByTheServersClock(t *testing.T) {
	t.Parallel()
	s := servers.StartPostgres(t)
	permits := open(t, s, nil)
	before := time.Now()
	a, err := permits.Acquire(t.Context(), store.PermitRequest{Key: "k", Holder: "h", Limit: 1, TTL: time.Second})
	if err != nil || !a.Granted() || a.Lease.Remaining != time.Second {
		t.Fatalf("%+v, %v", a, err)
	}
	stores.Until(t, "the lease ends", func() bool {
		h, err := permits.Holders(t.Context(), "k")
		return err == nil && len(h.Leases) == 0
	})
	if d := time.Since(before); d < time.Second {
		t.Errorf("it ends after %v", d)
	}
	conn := connect(t, s)
	defer conn.Close(context.WithoutCancel(t.Context()))
	stores.Until(t, "the row is gone", func() bool {
		time.Sleep(100 * time.Millisecond) // it takes some seconds
		var rows int
		if err := conn.QueryRow(servers.Bounded(t), "SELECT count(*) FROM headgate").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows == 0
	})
}
