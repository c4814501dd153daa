package denycache

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// table holds what is remembered, by the hashes of counters.
type table struct {
	now   func() time.Duration // since this process began to remember
	most  int                  // entries in a shard
	count atomic.Int64
	// An answer that the store gave before a key was forgotten must not be remembered
	// afterwards. So the table counts how often keys were forgotten: those of each place,
	// and all of them.
	all    atomic.Uint32
	freed  [1 << 10]atomic.Uint32
	shards [64]shard
}

// generation changes whenever a key is forgotten.
type generation uint64

type shard struct {
	mu      sync.Mutex // guards entries, and what they hold
	entries map[uint64]*deniedKey
}

// deniedKey holds the denials of a key by one version of a rule. A rule with other limits is
// another rule.
type deniedKey struct {
	rule    *headgate.Rule
	key     string
	denials []denial
	until   time.Duration // when the last of them ends
}

// costsOfKey is how many denials, of different costs, are remembered of a key.
const costsOfKey = 4

// denial is the store's answer to one cost.
type denial struct {
	cost        int64
	blocked     bool // by a penalty, so that no other cost is admitted either
	told, until time.Duration
	decisions   []headgate.Decision // never changed
}

func (t *table) init(entries int) {
	start := time.Now()
	t.now = func() time.Duration { return time.Since(start) }
	t.most = max(1, entries/len(t.shards))
}

func (t *table) shard(hash uint64) *shard { return &t.shards[hash%uint64(len(t.shards))] }

func (t *table) place(hash uint64) *atomic.Uint32 {
	return &t.freed[hash/uint64(len(t.shards))%uint64(len(t.freed))]
}

func (t *table) generation(hash uint64) generation {
	return generation(t.all.Load())<<32 | generation(t.place(hash).Load())
}

// find returns the store's denial of the check, if it still holds. It notes in the glance
// whether anything is remembered of the key.
func (t *table) find(g *glance, c *headgate.Check, now time.Duration) (denial, bool) {
	s := t.shard(g.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.entries[g.hash]
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
func (t *table) keep(g *glance, c *headgate.Check, e denial) {
	s := t.shard(g.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.generation(g.hash) != g.age {
		return
	}
	if s.entries == nil {
		s.entries = make(map[uint64]*deniedKey)
	}
	k := s.entries[g.hash]
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
		s.entries[g.hash] = k
	}
	k.add(e)
}

// add replaces the denial of the same cost, or else takes a free place or that of the denial
// that ends first.
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

// makeRoom drops an entry that has ended, or, of a few entries, the one that ends first.
func (s *shard) makeRoom(now time.Duration) {
	var worst uint64
	var until time.Duration
	looked := 0
	for hash, k := range s.entries {
		if looked == 0 || k.until < until {
			worst, until = hash, k.until
		}
		if looked++; until <= now || looked == 8 {
			break
		}
	}
	delete(s.entries, worst)
}

// drop forgets what is remembered of a key. Answers to calls that are under way may still be
// remembered.
func (t *table) drop(hash uint64) {
	s := t.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.entries[hash]; ok {
		delete(s.entries, hash)
		t.count.Add(-1)
	}
}

// forget forgets a key, and makes sure that answers to calls that are under way are not
// remembered.
func (t *table) forget(hash uint64) {
	t.place(hash).Add(1)
	t.drop(hash)
}

// forgetAll forgets every key.
func (t *table) forgetAll() {
	t.all.Add(1)
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		t.count.Add(-int64(len(s.entries)))
		s.entries = nil
		s.mu.Unlock()
	}
}
