package cas

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

const (
	// maxNode is the longest name of a node, in bytes, and maxNodes how many are
	// counted.
	maxNode  = 64
	maxNodes = 1000
	// membersFor is how long the list of nodes is kept when it is empty, in µs.
	membersFor = 31 * 24 * headgate.Instant(time.Hour/time.Microsecond)
)

// members is the list of nodes that share a backend.
type members struct {
	since headgate.Instant // when the backend's data began
	nodes []member
}

type member struct {
	name  string
	until headgate.Instant // when it is gone unless it is heard of again
}

// Members records that a node is there for ttl from now, and forgets nodes whose time is over.
// The node's name has 1 to 64 bytes. A ttl of zero records that the node is gone. Members
// returns how many nodes are there, 1000 at most, and for how long the backend has had its
// data: since the first such call, or since it lost the data. Nodes count each other if they
// share a backend and a prefix.
func (s *Store) Members(ctx context.Context, node string, ttl time.Duration) (nodes int64, age time.Duration, err error) {
	if len(node) == 0 || len(node) > maxNode || ttl < 0 || ttl > time.Hour {
		return 0, 0, headgate.Invalid("node", "",
			"its name has %d bytes and its time to live is %v, must be 1 to %d and up to %v", len(node), ttl, maxNode, time.Hour)
	}
	// The name of no counter begins like this.
	name := s.settings.prefix + "\x00members"
	err = s.turns.do(ctx, []string{name}, func(b *batch) error {
		var m members
		if decode(b.value(name), m.code) != nil {
			m = members{} // A list that cannot be read counts as lost.
		}
		if m.since == 0 || m.since > b.now { // or the clock has stepped back
			m.since = b.now
		}
		kept := m.nodes[:0]
		for _, other := range m.nodes {
			if other.name != node && other.until > b.now {
				kept = append(kept, other)
			}
		}
		if m.nodes = kept; ttl > 0 && len(m.nodes) < maxNodes {
			m.nodes = append(m.nodes, member{node, b.now + headgate.Instant(ttl.Microseconds())})
		}
		nodes, age = int64(len(m.nodes)), time.Duration(b.now-m.since)*time.Microsecond
		b.setValue(name, encode(m.code), b.now+membersFor, 0)
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	return nodes, age, nil
}

// code describes the bytes of the list.
func (m *members) code(c *codec) {
	c.version()
	signed(c, &m.since)
	list(c, &m.nodes, maxNodes, func(one *member) {
		c.text(&one.name, maxNode)
		signed(c, &one.until)
	})
}
