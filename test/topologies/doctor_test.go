package topologies

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/redis/doctor"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// diagnose returns what is found of a node, or of all if it is "", in the order in which
// it was found.
func diagnose(t *testing.T, store *redis.Store) func(node, what string) []doctor.Finding {
	t.Helper()
	d, err := store.Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return func(node, what string) []doctor.Finding {
		var found []doctor.Finding
		for _, f := range d.Findings {
			if f.Node == node && f.What == what {
				found = append(found, f)
			}
		}
		return found
	}
}

// TestDiagnoseReplicas: who would take over is looked at as well, once.
func TestDiagnoseReplicas(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		t.Run("sentinel", func(t *testing.T) {
			s := servers.StartSentinel(t, kind)
			var replica *servers.Server
			for _, one := range s.Nodes {
				if one != s.Primary() {
					replica = one
				}
			}
			stores.Do(t, replica, "CONFIG", "SET", "maxmemory", "200mb")
			stores.Do(t, replica, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
			store := stores.OpenURL(t, s.URL())
			find := diagnose(t, store)
			for _, one := range s.Nodes {
				if f := find(one.Addr(), "version"); len(f) != 1 || f[0].Level == doctor.Bad {
					t.Errorf("of %s: %+v", one.Addr(), f)
				}
			}
			if f := find(replica.Addr(), "eviction"); len(f) != 1 || f[0].Level != doctor.Bad || !strings.Contains(f[0].Text, "allkeys-lru") {
				t.Errorf("of a replica that evicts: %+v", f)
			}
			if f := find("", "clock"); len(f) != 1 || !strings.Contains(f[0].Text, "3 nodes") {
				t.Errorf("of the clocks: %+v", f)
			}
			for _, one := range s.Sentinels {
				if f := find(one.Addr(), "sentinel"); len(f) != 1 || f[0].Level != doctor.Fine {
					t.Errorf("of a Sentinel: %+v", f)
				}
			}
			s.Sentinels[0].Kill()
			find = diagnose(t, store)
			if f := find(s.Sentinels[0].Addr(), "sentinel"); len(f) != 1 || f[0].Level != doctor.Doubtful || !strings.Contains(f[0].Text, "does not answer") {
				t.Errorf("of a Sentinel that is gone: %+v", f)
			}
			s.Sentinels[0].Restart()
		})
		t.Run("cluster", func(t *testing.T) {
			c := servers.StartCluster(t, kind)
			store := stores.OpenURL(t, c.URL())
			find := diagnose(t, store)
			for _, node := range c.Nodes {
				if f := find(node.Addr(), "version"); len(f) != 1 || f[0].Level == doctor.Bad {
					t.Errorf("of %s: %+v", node.Addr(), f)
				}
			}
			if f := find("", "slots"); len(f) != 1 || f[0].Level != doctor.Fine {
				t.Errorf("of the slots: %+v", f)
			}
			// A part of it is away for good.
			gone := c.Owner(0)
			replica := c.ReplicaOf(gone)
			replica.Kill()
			gone.Kill()
			c.Impatient()
			stores.Until(t, "it is known who is away", func() bool {
				time.Sleep(100 * time.Millisecond) // to look is dear
				find = diagnose(t, store)
				f := find("", "slots")
				return len(f) == 1 && f[0].Level == doctor.Bad
			})
			if f := find("", "slots"); !strings.Contains(f[0].Text, "5461 of 16384") {
				t.Errorf("of the slots: %+v", f)
			}
			// The client forgets the node as soon as it asks for the shards anew; the other nodes do not.
			for range 3 {
				if f := find(gone.Addr(), "answers"); len(f) != 1 || f[0].Level != doctor.Bad || f[0].Fix == "" {
					t.Errorf("of a node that is gone: %+v", f)
				}
				time.Sleep(time.Second)
				find = diagnose(t, store)
			}
			if f := find(c.Owner(16000).Addr(), "version"); len(f) != 1 {
				t.Errorf("of a node that is there: %+v", f)
			}
		})
	})
}

// TestDiagnoseGone: where nobody answers, that is an error.
func TestDiagnoseGone(t *testing.T) {
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		store := stores.OpenURL(t, s.URL(), redis.Timeout(time.Second))
		s.Kill()
		if d, err := store.Diagnose(t.Context()); err == nil {
			t.Errorf("of a server that is gone: %+v", d)
		}
	})
}
