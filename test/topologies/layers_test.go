package topologies

import (
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestLayersOnCluster: three nodes that lease from a Cluster exceed no limit, and three that
// report to it exceed limits by no more than they do elsewhere, while a replica takes
// over on purpose. A report that fails meanwhile is forgotten. The layers see nothing
// of the servers but what the store answers, and what it answers during a failover of either kind
// is in test/chaos and TestClusterFailover, so that one kind is enough.
func TestLayersOnCluster(t *testing.T) {
	t.Parallel()
	c := servers.StartCluster(t, servers.Redis)
	open := func(prefix string) (all []headgate.Store) {
		for range 3 {
			all = append(all, stores.OpenURL(t, c.URL(), redis.Prefix(prefix)))
		}
		return all
	}
	leasing, leased := stores.Layers(t, headgate.Leased, open("leased:")...)
	reporting, local := stores.Layers(t, headgate.Async, open("async:")...)
	rules := stores.Brisk(time.Second)
	var byLease, byReport [][]stores.Span
	var all sync.WaitGroup
	for _, run := range []struct {
		nodes    []stores.Node
		callers  int // of each rule at each node
		served   func() int64
		admitted *[][]stores.Span
	}{
		// Fewer do not ask often enough for leases on a machine that is busy.
		{leasing, 16, leased, &byLease},
		{reporting, 4, local, &byReport},
	} {
		all.Go(func() {
			*run.admitted = stores.Spend(t, run.nodes, rules, stores.Load{
				Callers: run.callers, Pause: 5 * time.Millisecond, Length: 2 * time.Second, MayFail: true,
				Enough: func() bool { return run.served() > 0 },
			})
		})
	}
	time.Sleep(time.Second)
	slot := slot(t, c, "leased:"+rules[1].Name()+" k")
	old := c.Owner(slot)
	servers.HandOver(t, func() bool { return c.Owner(slot) != old }, c.ReplicaOf(old), "CLUSTER", "FAILOVER")
	stores.Ended(t, "the callers have ended", stores.Waited(&all))
	stores.Within(t, rules, byLease, func(*headgate.Limit) int64 { return 0 })
	stores.Within(t, rules, byReport, func(l *headgate.Limit) int64 { return 2 * stores.AsyncExcess(l, 3) })
	if leased() == 0 || local() == 0 {
		t.Errorf("%d requests were decided by leases and %d by what nodes knew", leased(), local())
	}
	t.Logf("%d requests were decided by leases, and %d by what nodes knew", leased(), local())
}
