package topologies

import (
	"testing"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/permits"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestPermitsOnCluster: keys are spread over the slots of a cluster, and permits are what
// they are on one server.
func TestPermitsOnCluster(t *testing.T) {
	t.Parallel()
	histories := 5
	if stores.Soaking(t) {
		histories = 200
	}
	c := servers.StartCluster(t, servers.Redis)
	storetest.RunPermits(t, histories, func(t testing.TB, clock func() int64) store.Permits {
		return stores.OpenURL(t, c.URL(), redis.Clock(clock))
	})
	t.Run("documents", func(t *testing.T) {
		storetest.RunDocuments(t, func(t testing.TB, clock func() int64) store.Documents {
			return stores.OpenURL(t, c.URL(), redis.Clock(clock))
		})
	})
	t.Run("failover", func(t *testing.T) {
		store := stores.OpenURL(t, c.URL(), redis.Timeout(250*time.Millisecond))
		t.Logf("%+v", permits.RunFailover(t, store, func(granted func(int)) {
			old := c.Owner(0)
			old.Kill()
			c.AwaitFailover(0, old)
			granted(1)
		}))
	})
}

// TestPermitsLost: what the new primary was never sent is lost, and fences still hold. Where it was
// sent all, TestPermitsOnCluster has them hold.
func TestPermitsLost(t *testing.T) {
	t.Parallel()
	s := servers.StartSentinel(t, servers.Redis)
	store := stores.OpenURL(t, s.URL(), redis.Timeout(250*time.Millisecond))
	got := permits.RunFailover(t, store, func(granted func(int)) {
		old := s.Primary()
		for _, node := range s.Nodes[1:] { // the first is the primary
			node.Pause()
		}
		stores.Do(t, old, "CLIENT", "KILL", "TYPE", "REPLICA")
		granted(20)
		old.Kill()
		for _, node := range s.Nodes[1:] {
			node.Resume()
		}
		s.AwaitFailover(old)
		granted(1)
	})
	t.Logf("%+v", got)
}
