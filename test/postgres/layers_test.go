package postgres_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestLayers: three nodes that lease from a PostgreSQL exceed no limit, and three that report
// to it exceed limits by no more than they do with any other store.
func TestLayers(t *testing.T) {
	t.Parallel()
	s := servers.StartPostgres(t)
	for _, c := range []struct {
		consistency headgate.Consistency
		callers     int // of each rule at each node
		pause       time.Duration
		over        func(*headgate.Limit) int64
	}{
		// Fewer do not ask often enough for leases on a machine that is busy.
		{headgate.Leased, 16, 20 * time.Millisecond, func(*headgate.Limit) int64 { return 0 }},
		{headgate.Async, 4, 5 * time.Millisecond, func(l *headgate.Limit) int64 { return stores.AsyncExcess(l, 3) }},
	} {
		t.Run(c.consistency.String(), func(t *testing.T) {
			var all []headgate.Store
			for range 3 {
				all = append(all, open(t, s, nil, postgres.Prefix(c.consistency.String()+":")))
			}
			nodes, served := stores.Layers(t, c.consistency, all...)
			rules := stores.Brisk(3 * time.Second)
			admitted := stores.Spend(t, nodes, rules, stores.Load{
				Callers: c.callers, Pause: c.pause, Length: 4 * time.Second, Enough: func() bool { return served() > 0 },
			})
			stores.Within(t, rules, admitted, c.over)
			if served() == 0 {
				t.Error("every request was decided by the store")
			}
			t.Logf("%d requests were decided without the store", served())
		})
	}
}
