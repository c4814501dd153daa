package cas

import (
	"context"
	"encoding/binary"
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
		c := &b.cells[b.places[name]]
		raw := c.raw
		if c.write {
			raw = c.value
		}
		// A list that cannot be read counts as lost.
		m := readMembers(raw)
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
		c.write, c.value, c.expires, c.due = true, appendMembers(nil, &m), b.now+membersFor, 0
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	return nodes, age, nil
}

func appendMembers(b []byte, m *members) []byte {
	b = binary.AppendVarint(append(b, version), int64(m.since))
	b = binary.AppendUvarint(b, uint64(len(m.nodes)))
	for _, n := range m.nodes {
		b = binary.AppendVarint(appendText(b, n.name), int64(n.until))
	}
	return b
}

// readMembers is the inverse of appendMembers. It returns an empty list if it cannot be
// read.
func readMembers(b []byte) members {
	r := reader{left: b}
	if r.byte() != version {
		return members{}
	}
	m := members{since: r.time()}
	for range r.uint(maxNodes) {
		if m.nodes = append(m.nodes, member{r.string(maxNode), r.time()}); r.err != nil {
			break
		}
	}
	if r.end() != nil {
		return members{}
	}
	return m
}
