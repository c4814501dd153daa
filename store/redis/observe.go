package redis

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store/redis/internal/guard"
)

// Observer is called after each call that a store makes for decisions and related operations. node
// is the server that was asked, as host:port. op is the operation in one word, such as "take" (also
// for peeks and charges), "refund" (also for settlements) or "reset". took includes all
// redirections. A call may carry several decisions. On a cluster, node is the one that has served
// the slot in the last few seconds; "" means that it is not known.
//
// The goroutine that waits for the decision calls the Observer, so it must not block.
type Observer func(node, op string, took time.Duration, err error)

// Observe sets an observer of all calls. Without one, the store does not measure times.
func Observe(o Observer) Option { return func(s *settings) { s.observer = o } }

// placesLast is how long it is assumed that the same node serves a slot.
const placesLast = 2 * time.Second

// observing knows which server a call goes to.
type observing struct {
	tell    Observer // nil if there is none
	places  atomic.Pointer[places]
	looking atomic.Bool
}

// places knows which node serves which slot.
type places struct {
	until time.Time
	nodes []string
	slots []uint16 // by slot, 1 + the node's index in nodes, or 0 if unknown; nil without a cluster
	// guards are the guards of the nodes, in the same order.
	guards []*guard.Server
}

const slotCount = 1 << 14

func (p *places) node(slot uint16) string {
	switch {
	case p == nil || len(p.nodes) == 0:
		return ""
	case p.slots == nil:
		return p.nodes[0]
	case slot < slotCount && p.slots[slot] > 0:
		return p.nodes[p.slots[slot]-1]
	}
	return ""
}

// guard returns the guard of the node that serves a slot, or otherwise if that node is not known.
func (p *places) guard(slot uint16, otherwise *guard.Server) *guard.Server {
	if p == nil || slot >= slotCount || len(p.slots) == 0 || p.slots[slot] == 0 {
		return otherwise
	}
	return p.guards[p.slots[slot]-1]
}

// placesNow returns which node serves which slot, as of the last few seconds, or nil if that is not
// known. It does not wait.
func (s *Store) placesNow() *places {
	p, now := s.observing.places.Load(), time.Now()
	if p == nil || now.After(p.until) {
		p = s.look(p, now)
	}
	return p
}

// observe reports a call to the node of a slot.
func (s *Store) observe(slot uint16, op string, start time.Time, err error) {
	o := &s.observing
	o.tell(s.placesNow().node(slot), op, time.Since(start), err)
}

// look starts to find out which nodes serve which slots. It does not wait, and returns what is
// known already.
func (s *Store) look(known *places, now time.Time) *places {
	if s.clustered == nil {
		p := &places{until: now.Add(placesLast), nodes: slices.Sorted(maps.Keys(s.client.Nodes()))}
		s.observing.places.Store(p)
		return p
	}
	if s.observing.looking.CompareAndSwap(false, true) {
		begun := s.clustered.tasks.start(func() {
			defer s.observing.looking.Store(false)
			ctx, cancel := context.WithTimeout(context.Background(), placesLast)
			defer cancel()
			p := &places{}
			if reply, err := s.client.Do(ctx, s.client.B().Arbitrary("CLUSTER", "SLOTS").Build()).ToArray(); err == nil {
				p = readPlaces(reply)
				p.guards = s.guards.Of(p.nodes)
			} else if known != nil {
				p.nodes, p.slots, p.guards = known.nodes, known.slots, known.guards
			}
			p.until = time.Now().Add(placesLast)
			s.observing.places.Store(p)
		})
		if !begun {
			s.observing.looking.Store(false)
		}
	}
	return known
}

// readPlaces reads the answer to CLUSTER SLOTS: first and last slot, and the nodes that
// serve them, the primary first.
func readPlaces(reply []rueidis.RedisMessage) *places {
	p := &places{slots: make([]uint16, slotCount)}
	for i := range reply {
		line, err := reply[i].ToArray()
		if err != nil || len(line) < 3 {
			continue
		}
		first, err1 := line[0].AsInt64()
		last, err2 := line[1].AsInt64()
		primary, err3 := line[2].ToArray()
		if err1 != nil || err2 != nil || err3 != nil || len(primary) < 2 || first < 0 || last >= slotCount {
			continue
		}
		host, err1 := primary[0].ToString()
		port, err2 := primary[1].AsInt64()
		if err1 != nil || err2 != nil || host == "" {
			continue // a node that does not know its own address
		}
		name := net.JoinHostPort(host, strconv.FormatInt(port, 10))
		at := slices.Index(p.nodes, name)
		if at < 0 {
			at, p.nodes = len(p.nodes), append(p.nodes, name)
		}
		for slot := first; slot <= last; slot++ {
			p.slots[slot] = uint16(at + 1)
		}
	}
	return p
}
