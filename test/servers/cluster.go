package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	primaries = 3
	hashSlots = 16384

	// nodeTimeout is how long a primary must be missed while a test waits for a failover.
	nodeTimeout = time.Second
)

// Cluster is three primaries, each with a replica that takes over when it has been gone
// for about a second once [Cluster.AwaitFailover] waits for it, and not before.
type Cluster struct {
	// Nodes are all servers. The first three begin as the primaries of equal
	// thirds of the slots, in their order; each of the others follows the one
	// three places before it.
	Nodes []*Server

	t         testing.TB
	ids       []string
	impatient bool
}

// StartCluster starts the servers, forms the cluster and waits until it serves
// every slot and the replicas follow. The options are for all servers.
func StartCluster(t testing.TB, kind Kind, options ...Option) *Cluster {
	t.Helper()
	for range 3 {
		c := formCluster(t, kind, options...)
		crashed := c.crashed()
		if crashed == nil {
			c.AwaitWhole()
			return c
		}
		// Redis 7.0 with TLS does so on a busy machine, now and then.
		t.Logf("servers: the node at %s has crashed while the cluster was formed; another one is", crashed.Addr())
		for _, node := range c.Nodes {
			node.Kill()
		}
	}
	t.Fatal("servers: three times a node has crashed while the cluster was formed")
	return nil
}

// crashed returns a node that has ended by itself, or nil.
func (c *Cluster) crashed() *Server {
	for _, node := range c.Nodes {
		if node.crashed() {
			return node
		}
	}
	return nil
}

// formCluster starts the servers and has them meet. It gives up if one of them crashes.
func formCluster(t testing.TB, kind Kind, options ...Option) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	options = append([]Option{replication(), ClusterNode()}, options...)
	for range 2 * primaries {
		node := Start(t, kind, options...)
		c.Nodes = append(c.Nodes, node)
		c.ids = append(c.ids, fmt.Sprint(node.must("CLUSTER", "MYID")))
	}
	for i, node := range c.Nodes {
		node.must("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < primaries {
			node.must("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*hashSlots/primaries), strconv.Itoa((i+1)*hashSlots/primaries-1))
		}
		// All with all: the gossip that would do it takes longer.
		for _, other := range c.Nodes[:i] {
			other.must(node.meeting()...)
		}
	}
	for i, node := range c.Nodes[primaries:] {
		await(t, "a replica knows its primary", func(ctx context.Context) error {
			if _, err := node.Do(ctx, "CLUSTER", "REPLICATE", c.ids[i]); err != nil && c.crashed() == nil {
				// A meeting that takes longer than the node timeout is given up. On a
				// busy machine it may have to be asked for again.
				_, again := node.Do(ctx, c.Nodes[i].meeting()...)
				return errors.Join(err, again)
			}
			return nil
		})
	}
	return c
}

// meeting is the command that makes another node meet this one.
func (s *Server) meeting() []string {
	return []string{"CLUSTER", "MEET", loopback, strconv.Itoa(s.Port()), strconv.Itoa(s.bus)}
}

// Impatient has a node that is missed for a second count as gone from now on, at any
// time: for tests of what happens then.
func (c *Cluster) Impatient() {
	c.t.Helper()
	c.impatient = true
	await(c.t, "the nodes are impatient", func(ctx context.Context) error { return c.pace(ctx, false) })
}

// ClusterNode makes a server one that can be a part of a cluster, and that is none yet.
// [StartCluster] forms one of several.
func ClusterNode() Option {
	return func(s *settings) {
		s.cluster = true
		s.directives = append(s.directives,
			// The nodes get to know one another at the pace of this; see pace.
			[]string{"cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10)},
			[]string{"cluster-replica-no-failover", "yes"},
			[]string{"cluster-replica-validity-factor", "0"},
			[]string{"cluster-allow-replica-migration", "no"})
	}
}

// AwaitWhole waits until every server that is up says that the cluster serves all
// slots, knows all that are up as well, and follows its primary if it is a replica.
func (c *Cluster) AwaitWhole() {
	c.t.Helper()
	await(c.t, "the cluster serves all slots", func(ctx context.Context) error {
		up := 0
		for _, node := range c.Nodes {
			if node.up() {
				up++
			}
		}
		for _, node := range c.Nodes {
			if !node.up() {
				continue
			}
			reply, err := node.Do(ctx, "CLUSTER", "NODES")
			if err != nil {
				return err
			}
			well := 0
			for line := range strings.Lines(fmt.Sprint(reply)) {
				f := strings.Fields(line)
				if len(f) < 8 || f[7] != "connected" {
					continue
				}
				flags := strings.Split(f[2], ",") // "nofailover" is no failure
				if !slices.ContainsFunc(flags, func(flag string) bool { return slices.Contains([]string{"fail", "fail?", "handshake"}, flag) }) {
					well++
				}
			}
			if well < up {
				return fmt.Errorf("the node at %s is connected to %d nodes of %d", node.Addr(), well, up)
			}
			info, err := node.Do(ctx, "CLUSTER", "INFO")
			if err != nil {
				return err
			}
			if !strings.Contains(fmt.Sprint(info), "cluster_state:ok") {
				return fmt.Errorf("the node at %s says: %s", node.Addr(), info)
			}
			if _, err := node.leads(ctx); err != nil {
				return err
			}
			if err := node.restartable(); err != nil {
				return err
			}
		}
		return c.pace(ctx, !c.impatient)
	})
}

// restartable returns an error as long as the node could not be started again from its
// file: Valkey takes one for broken in which a replica is in another shard than its
// primary, and writes that until it has heard from both.
func (s *Server) restartable() error {
	text, err := os.ReadFile(filepath.Join(s.dir, "nodes.conf"))
	if err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	shards, follows := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		if _, shard, ok := strings.Cut(f[1], "shard-id="); ok {
			shards[f[0]], _, _ = strings.Cut(shard, ",")
			follows[f[0]] = f[3] // "-" for a primary
		}
	}
	for node, primary := range follows {
		if of, known := shards[primary]; known && of != shards[node] {
			return fmt.Errorf("in the file of %s the replica %s is in another shard than its primary", s.Addr(), node)
		}
	}
	return nil
}

// Owner is the primary that serves the slot, as a node that is up sees it.
func (c *Cluster) Owner(slot uint16) *Server {
	c.t.Helper()
	return c.owner(slot, nil)
}

// AwaitFailover waits until another server than the old one serves the slot, and
// returns it. While it waits, a primary that is missed for a second is replaced.
func (c *Cluster) AwaitFailover(slot uint16, old *Server) *Server {
	c.t.Helper()
	await(c.t, "the nodes are impatient", func(ctx context.Context) error { return c.pace(ctx, false) })
	next := c.owner(slot, old)
	await(c.t, "the nodes are patient", func(ctx context.Context) error { return c.pace(ctx, !c.impatient) })
	return next
}

// pace tells the nodes after how long another counts as gone, and whether it is to be
// replaced. It returns an error as long as one does not know that answers at all.
func (c *Cluster) pace(ctx context.Context, patient bool) error {
	timeout, stay := nodeTimeout, "no"
	if patient {
		timeout, stay = calm, "yes"
	}
	for _, node := range c.Nodes {
		if !node.answers() {
			continue
		}
		if _, err := node.Do(ctx, "CONFIG", "SET", "cluster-node-timeout", strconv.FormatInt(timeout.Milliseconds(), 10),
			"cluster-replica-no-failover", stay); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) owner(slot uint16, not *Server) *Server {
	c.t.Helper()
	var owner *Server
	await(c.t, fmt.Sprintf("slot %d has an owner", slot), func(ctx context.Context) error {
		for _, node := range c.Nodes {
			if !node.up() {
				continue
			}
			reply, err := node.ask(ctx, "CLUSTER", "SLOTS")
			if err != nil {
				continue
			}
			if owner = c.serving(slot, reply); owner != nil && owner != not {
				return nil
			}
		}
		return fmt.Errorf("no other node serves it")
	})
	return owner
}

// serving finds the primary of a slot in the answer to CLUSTER SLOTS.
func (c *Cluster) serving(slot uint16, reply any) *Server {
	ranges, _ := reply.([]any)
	for _, r := range ranges {
		f, _ := r.([]any)
		if len(f) < 3 || int64(slot) < f[0].(int64) || int64(slot) > f[1].(int64) {
			continue
		}
		addr, _ := f[2].([]any)
		for _, n := range c.Nodes {
			if len(addr) >= 2 && addr[1] == int64(n.Port()) {
				return n
			}
		}
	}
	return nil
}

// ReplicaOf is the other one of the two servers that began as a primary and its replica:
// the replica of whichever of them is the primary now.
func (c *Cluster) ReplicaOf(primary *Server) *Server {
	return c.Nodes[(slices.Index(c.Nodes, primary)+primaries)%len(c.Nodes)]
}

// Migration is a slot on its way from one primary to another.
type Migration struct {
	From, To *Server

	c    *Cluster
	slot string
}

// Migrate begins to move a slot to another primary: from here on the old one
// sends those who ask for keys that it has not to the new one, with ASK.
func (c *Cluster) Migrate(slot uint16, to *Server) *Migration {
	c.t.Helper()
	m := &Migration{From: c.Owner(slot), To: to, c: c, slot: strconv.Itoa(int(slot))}
	m.To.must("CLUSTER", "SETSLOT", m.slot, "IMPORTING", c.id(m.From))
	m.From.must("CLUSTER", "SETSLOT", m.slot, "MIGRATING", c.id(m.To))
	return m
}

// MoveKey moves one key of the slot.
func (m *Migration) MoveKey(key string) {
	m.c.t.Helper()
	args := []string{"MIGRATE", loopback, strconv.Itoa(m.To.Port()), key, "0", "30000"}
	if password := m.To.settings.password; password != "" {
		args = append(args, "AUTH", password)
	}
	m.From.must(args...)
}

// Finish moves what keys are left, and gives the slot to its new owner.
func (m *Migration) Finish() {
	m.c.t.Helper()
	for {
		keys, _ := m.From.must("CLUSTER", "GETKEYSINSLOT", m.slot, "100").([]any)
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			m.MoveKey(fmt.Sprint(key))
		}
	}
	for _, node := range []*Server{m.To, m.From} {
		node.must("CLUSTER", "SETSLOT", m.slot, "NODE", m.c.id(m.To))
	}
	for _, node := range m.c.Nodes {
		if node.up() && strings.Contains(fmt.Sprint(node.must("INFO", "replication")), "role:master") {
			node.must("CLUSTER", "SETSLOT", m.slot, "NODE", m.c.id(m.To))
		}
	}
}

func (c *Cluster) id(s *Server) string {
	c.t.Helper()
	for i, node := range c.Nodes {
		if node == s {
			return c.ids[i]
		}
	}
	c.t.Fatalf("servers: %s is not a node of the cluster", s.Addr())
	return ""
}

// URL is the address of the cluster, as stores are configured with it.
func (c *Cluster) URL() string {
	hosts := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		hosts[i] = node.Addr()
	}
	u := url.URL{Scheme: "redis-cluster", Host: strings.Join(hosts, ",")}
	c.Nodes[0].settings.addTo(&u)
	return u.String()
}
