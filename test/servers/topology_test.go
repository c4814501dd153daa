package servers

import "testing"

func eachKind(t *testing.T, test func(t *testing.T, kind Kind)) {
	for _, kind := range Kinds() {
		t.Run(string(kind), func(t *testing.T) { test(t, kind) })
	}
}

// TestSentinelFailsOver: the primary that is killed is replaced, and comes back as
// a replica.
func TestSentinelFailsOver(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		s := StartSentinel(t, kind, Password("secret"))
		old := s.Primary()
		if old != s.Nodes[0] {
			t.Fatalf("the primary is %s, want %s", old.Addr(), s.Nodes[0].Addr())
		}
		expect(t, old, "OK", "SET", "k", "1")
		old.AwaitReplicas(2)
		old.Kill()
		expect(t, s.AwaitFailover(old), "1", "GET", "k")
		old.Restart()
		s.AwaitWhole()
		if s.Primary() == old {
			t.Errorf("%s is the primary again", old.Addr())
		}
		expect(t, old, "1", "GET", "k")
	})
}

// TestClusterFailsOver: so it is in a cluster, and slots move between its nodes.
func TestClusterFailsOver(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		const slot, key = 12182, "foo"
		c := StartCluster(t, kind, TLS(NewCertificates(t)))
		old := c.Owner(slot)
		if old != c.Nodes[2] {
			t.Fatalf("slot %d belongs to %s, want %s", slot, old.Addr(), c.Nodes[2].Addr())
		}
		expect(t, old, "OK", "SET", key, "1")
		m := c.Migrate(slot, c.Nodes[0])
		m.Finish()
		if got := c.Owner(slot); got != c.Nodes[0] {
			t.Fatalf("slot %d belongs to %s, want %s", slot, got.Addr(), c.Nodes[0].Addr())
		}
		expect(t, c.Nodes[0], "1", "GET", key)
		c.Nodes[0].AwaitReplicas(1)
		c.Nodes[0].Kill()
		replica := c.ReplicaOf(c.Nodes[0])
		if got := c.AwaitFailover(slot, c.Nodes[0]); got != replica {
			t.Fatalf("slot %d belongs to %s, want %s", slot, got.Addr(), replica.Addr())
		}
		c.AwaitWhole()
		expect(t, replica, "1", "GET", key)
		c.Nodes[0].Restart()
		c.AwaitWhole()
		if c.Owner(slot) != replica {
			t.Errorf("%s took its slots back", c.Nodes[0].Addr())
		}
	})
}
