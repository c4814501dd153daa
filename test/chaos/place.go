package chaos

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
)

// Topology is how servers stand together.
type Topology string

// The topologies.
const (
	Standalone Topology = "standalone"
	Sentinel   Topology = "Sentinel"
	Cluster    Topology = "Cluster"
)

// Topologies are all of them, the simplest first.
func Topologies() []Topology { return []Topology{Standalone, Sentinel, Cluster} }

// Place is a group of servers that trials are held on, one after another.
type Place struct {
	Kind     servers.Kind
	Topology Topology

	t        testing.TB
	alone    *servers.Server
	sentinel *servers.Sentinel
	cluster  *servers.Cluster
	trials   int // so far: each has counters of its own
}

// NewPlace starts the servers; they end with the test. A single server keeps its data
// on disk and syncs each write, the others keep none.
func NewPlace(t testing.TB, kind servers.Kind, topology Topology) *Place {
	t.Helper()
	p := &Place{Kind: kind, Topology: topology, t: t}
	switch topology {
	case Standalone:
		p.alone = servers.Start(t, kind, servers.Directive("appendonly", "yes"), servers.Directive("appendfsync", "always"))
	case Sentinel:
		p.sentinel = servers.StartSentinel(t, kind)
	case Cluster:
		p.cluster = servers.StartCluster(t, kind)
	}
	return p
}

func (p *Place) url() string {
	switch p.Topology {
	case Sentinel:
		return p.sentinel.URL()
	case Cluster:
		return p.cluster.URL()
	}
	return p.alone.URL()
}

// primary is the server that has the slot.
func (p *Place) primary(slot uint16) *servers.Server {
	p.t.Helper()
	switch p.Topology {
	case Sentinel:
		return p.sentinel.Primary()
	case Cluster:
		return p.cluster.Owner(slot)
	}
	return p.alone
}

// slot is where a key is on a cluster. All servers must be up.
func (p *Place) slot(key string) uint16 {
	p.t.Helper()
	if p.Topology != Cluster {
		return 0
	}
	return uint16(do(p.t, p.cluster.Nodes[0], "CLUSTER", "KEYSLOT", key).(int64))
}

// successor waits until another server than the old one has the slot.
func (p *Place) successor(slot uint16, old *servers.Server) *servers.Server {
	p.t.Helper()
	if p.Topology == Cluster {
		return p.cluster.AwaitFailover(slot, old)
	}
	return p.sentinel.AwaitFailover(old)
}

// settled waits until all Sentinels have done with a failover. Until then they tell
// callers that the old primary is back as soon as it is.
func (p *Place) settled(next *servers.Server) {
	p.t.Helper()
	if p.Topology != Sentinel {
		return
	}
	until(p.t, "the Sentinels have ended the failover", func() bool {
		for _, s := range p.sentinel.Sentinels {
			state := fmt.Sprint(do(p.t, s, "SENTINEL", "MASTER", servers.MasterName))
			if strings.Contains(state, "failover_in_progress") || !strings.Contains(state, " port "+strconv.Itoa(next.Port())+" ") {
				return false
			}
		}
		return true
	})
}

// whole waits until all servers are in their places again.
func (p *Place) whole() {
	p.t.Helper()
	switch p.Topology {
	case Sentinel:
		p.sentinel.AwaitWhole()
	case Cluster:
		p.cluster.AwaitWhole()
	}
}

// all are the servers that hold data.
func (p *Place) all() []*servers.Server {
	switch p.Topology {
	case Sentinel:
		return p.sentinel.Nodes
	case Cluster:
		return p.cluster.Nodes
	}
	return []*servers.Server{p.alone}
}

// primaries are those of them that take writes.
func (p *Place) primaries() []*servers.Server {
	p.t.Helper()
	var list []*servers.Server
	for _, s := range p.all() {
		if strings.Contains(replication(p.t, s), "role:master") {
			list = append(list, s)
		}
	}
	return list
}

// replica is one that follows the primary.
func (p *Place) replica(of *servers.Server) *servers.Server {
	p.t.Helper()
	for _, s := range p.all() {
		if info := replication(p.t, s); strings.Contains(info, "master_port:"+strconv.Itoa(of.Port())+"\r") {
			return s
		}
	}
	p.t.Fatalf("chaos: nobody follows %s", of.Addr())
	return nil
}

func replication(t testing.TB, s *servers.Server) string {
	t.Helper()
	return fmt.Sprint(do(t, s, "INFO", "replication"))
}

// do sends a command that must succeed.
func do(t testing.TB, s *servers.Server, args ...string) any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	reply, err := s.Do(ctx, args...)
	if err != nil {
		t.Fatalf("chaos: %s to %s: %v", args[0], s.Addr(), err)
	}
	return reply
}
