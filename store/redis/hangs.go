package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// hangs knows which nodes of a cluster have stopped answering. The answers of the other
// nodes say nothing of those, and keep a breaker around the store closed; and a call that
// its deadline has ended goes on in the client until the connection is given up, for a
// second or two. So that neither waiting requests nor such calls pile up, a node that owes
// too many answers is not asked, but by a probe now and then. Calls to the others cost a
// look at one word more.
type hangs struct {
	some atomic.Int64 // nodes that owe answers

	mu sync.Mutex // guards of
	of map[string]*hang
}

// hang is a node that owes answers, or did.
type hang struct {
	silent atomic.Int64 // calls that ended by their deadline since the node last answered
	since  atomic.Int64 // when the first of them did, in ns
	last   atomic.Int64 // and the last
	retry  atomic.Int64 // when to try again with a call, in ns
}

const (
	// silentCalls is how many calls in a row end by their deadline, and silentFor for how
	// long, until a node is taken to hang. Many can end so at once where a process or a
	// node is only late, also if nobody asks it for a while then.
	silentCalls = 128
	silentFor   = 200 * time.Millisecond
	// hangProbeEvery is the time between two calls to a node that hangs.
	hangProbeEvery = 50 * time.Millisecond
)

// find returns what is known of a node; nil if nothing.
func (h *hangs) find(node string) *hang {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[node]
}

// late notes that a call to a node has ended by its deadline.
func (h *hangs) late(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of[node]
	if one == nil {
		one = new(hang)
		if h.of == nil {
			h.of = make(map[string]*hang)
		}
		h.of[node] = one
	}
	now := time.Now().UnixNano()
	one.last.Store(now)
	if one.silent.Add(1) == 1 {
		one.since.Store(now)
		h.some.Add(1)
	}
}

// keep forgets all nodes but these.
func (h *hangs) keep(nodes []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, one := range h.of {
		if !slices.Contains(nodes, name) {
			delete(h.of, name)
			h.answered(one)
		}
	}
}

func (h *hangs) answered(one *hang) {
	if one.silent.Load() != 0 && one.silent.Swap(0) != 0 {
		h.some.Add(-1)
	}
}

// placesNow is where slots are, as of the last few seconds. Nobody waits for it.
func (s *Store) placesNow() *places { return s.placesAt(time.Now()) }

func (s *Store) placesAt(now time.Time) *places {
	p := s.observing.places.Load()
	if p == nil || now.After(p.until) {
		p = s.look(p, now)
	}
	return p
}

// refuses returns an error if a call for the key would meet a node that hangs.
func (s *Store) refuses(key string) error {
	if s.clustered.hangs.some.Load() == 0 {
		return nil
	}
	node := s.placesNow().node(slotOf(key))
	one := s.clustered.hangs.find(node)
	if one == nil {
		return nil
	}
	now, next := time.Now().UnixNano(), one.retry.Load()
	switch {
	case one.silent.Load() < silentCalls, one.last.Load()-one.since.Load() < int64(silentFor):
		return nil
	case now >= next && one.retry.CompareAndSwap(next, now+int64(hangProbeEvery)):
		return nil
	}
	return fmt.Errorf("%s has stopped answering, and is asked now and then only", node)
}

// heard notes how a call for the key ended. One whose caller had no time for an answer
// says nothing of the node.
func (s *Store) heard(key string, began time.Time, err error) {
	if s.clustered == nil {
		return
	}
	h := &s.clustered.hangs
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if late && time.Since(began) < s.deadlines.timeout/4 {
		return
	}
	if !late {
		// That a connection broke is no answer.
		if _, answer := rueidis.IsRedisErr(err); err != nil && !answer || h.some.Load() == 0 {
			return
		}
	}
	node := s.placesNow().node(slotOf(key))
	if late && node != "" { // while it is not known who has the slot, nobody is to blame
		h.late(node)
	} else if one := h.find(node); one != nil && !late {
		h.answered(one)
	}
}
