package layered

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// keyName names the counters of a rule and key to all processes: the FNV-1a hash of
// both. Who may read messages may read the counters, whose names have the key as it is.
// Keys that are chosen so that their names agree displace each other, and are forgotten
// together: then the store is asked once more than it need be.
func keyName(r *headgate.Rule, key string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	name := r.Name()
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	h = (h ^ ' ') * prime
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}
	return h
}

// denyTable is what is remembered, by the names of keys.
type denyTable struct {
	now   func() time.Duration // since this process began to remember
	most  int                  // entries in a shard
	count atomic.Int64
	// What the store said before a key was forgotten must not be remembered
	// afterwards: it is counted how often that happened, to keys of each place and
	// to all of them.
	all    atomic.Uint32
	freed  [1 << 10]atomic.Uint32
	shards [64]denyShard
}

// generation changes whenever a key is forgotten.
type generation uint64

type denyShard struct {
	mu      sync.Mutex // guards entries, and what they hold
	entries map[uint64]*deniedKey
}

// deniedKey is what is remembered of a key, by its rule as it is now: other limits are
// another rule.
type deniedKey struct {
	rule    *headgate.Rule
	key     string
	denials []denial
	until   time.Duration // when the last of them ends
}

// costsOfKey is for how many costs denials of a key are remembered.
const costsOfKey = 4

// denial is what the store said to one cost.
type denial struct {
	cost        int64
	blocked     bool // by a penalty, so that no other cost is admitted either
	told, until time.Duration
	decisions   []headgate.Decision // never changed
}

func (t *denyTable) open(entries int) {
	start := time.Now()
	t.now = func() time.Duration { return time.Since(start) }
	t.most = max(1, entries/len(t.shards))
}

func (t *denyTable) shard(name uint64) *denyShard { return &t.shards[name%uint64(len(t.shards))] }

func (t *denyTable) place(name uint64) *atomic.Uint32 {
	return &t.freed[name/uint64(len(t.shards))%uint64(len(t.freed))]
}

func (t *denyTable) generation(name uint64) generation {
	return generation(t.all.Load())<<32 | generation(t.place(name).Load())
}

// find returns what the store said of the check, if that still holds. It notes in the
// glance whether there is anything.
func (t *denyTable) find(g *glance, c *headgate.Check, now time.Duration) (denial, bool) {
	s := t.shard(g.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.entries[g.name]
	g.known = k != nil
	if k == nil || k.rule != c.Rule || now >= k.until || k.key != c.Key {
		return denial{}, false
	}
	cost, other := c.Units(), -1
	for i := range k.denials {
		switch e := &k.denials[i]; {
		case now >= e.until:
		case e.cost == cost:
			return *e, true
		case e.blocked:
			other = i
		}
	}
	if other < 0 {
		return denial{}, false
	}
	return k.denials[other], true
}

// keep remembers a denial, unless the key was forgotten since the glance.
func (t *denyTable) keep(g *glance, c *headgate.Check, e denial) {
	s := t.shard(g.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.generation(g.name) != g.age {
		return
	}
	if s.entries == nil {
		s.entries = make(map[uint64]*deniedKey)
	}
	k := s.entries[g.name]
	if k == nil {
		if len(s.entries) >= t.most {
			s.makeRoom(e.told)
			t.count.Add(-1)
		}
		t.count.Add(1)
	}
	if k == nil || k.rule != c.Rule || k.key != c.Key {
		// The caller's text may be part of something large, such as the body of a
		// request, that would stay in memory with it.
		k = &deniedKey{rule: c.Rule, key: strings.Clone(c.Key)}
		s.entries[g.name] = k
	}
	k.add(e)
}

// add puts a denial in the place of that of the same cost, or else of the one that
// ends first.
func (k *deniedKey) add(e denial) {
	place := -1
	for i := range k.denials {
		if k.denials[i].cost == e.cost {
			place = i
			break
		}
		if place < 0 || k.denials[i].until < k.denials[place].until {
			place = i
		}
	}
	if place < 0 || k.denials[place].cost != e.cost && len(k.denials) < costsOfKey {
		k.denials = append(k.denials, e)
	} else {
		k.denials[place] = e
	}
	k.until = 0
	for i := range k.denials {
		k.until = max(k.until, k.denials[i].until)
	}
}

// makeRoom drops some entry that has ended, or the one of a few that ends first.
func (s *denyShard) makeRoom(now time.Duration) {
	var worst uint64
	var until time.Duration
	looked := 0
	for name, k := range s.entries {
		if looked == 0 || k.until < until {
			worst, until = name, k.until
		}
		if looked++; until <= now || looked == 8 {
			break
		}
	}
	delete(s.entries, worst)
}

// drop forgets what is remembered of a key. What the store is just being asked may be
// remembered.
func (t *denyTable) drop(name uint64) {
	s := t.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.entries[name]; ok {
		delete(s.entries, name)
		t.count.Add(-1)
	}
}

// forget forgets a key, and what the store is just being asked about it as well.
func (t *denyTable) forget(name uint64) {
	t.place(name).Add(1)
	t.drop(name)
}

// forgetAll forgets every key.
func (t *denyTable) forgetAll() {
	t.all.Add(1)
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		t.count.Add(-int64(len(s.entries)))
		s.entries = nil
		s.mu.Unlock()
	}
}
