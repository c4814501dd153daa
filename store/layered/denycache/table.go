package denycache

import (
	"cmp"
	"slices"
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
	// forgets numbers the times that keys were forgotten. With the numbers in the shards, it tells
	// which answers the store gave before a key was forgotten. They must not be remembered.
	forgets atomic.Uint64
	shards  [64]shard
}

// moment is when the store was asked: the time, and the last number in forgets.
type moment struct {
	at      time.Duration
	forgets uint64
}

// shard holds the keys with some of the hashes.
type shard struct {
	mu        sync.Mutex // guards what follows; marks can be read without it
	entries   map[uint64]*deniedKey
	forgotten uint64 // when a key was forgotten last
	marks     marks
	stale     int // how many keys were removed whose marks are still there
}

// marks are a Bloom filter. They tell nearly all keys that are not remembered from those that are.
// A request for such a key is the usual one, and a look into the map would cost it a lock and
// several lines of memory that are in no cache of the processor. Without marks, such a request took
// the caller 6.5 to 7 µs of the processors in the place of 5.5, with 20,000 keys remembered and calls
// combined. The marks need no lock and one line, and those of all shards together are only 16 KiB.
// While 10,000 keys are remembered, one in a hundred other keys has their marks; with
// DefaultMaxKeys, every second one.
type marks [32]atomic.Uint64

// of returns the word in which a key has its marks, and the marks.
func (m *marks) of(hash uint64) (word *atomic.Uint64, mark uint64) {
	return &m[hash>>6%uint64(len(m))], 1<<(hash>>11%64) | 1<<(hash>>17%64) | 1<<(hash>>23%64)
}

// deniedKey holds the denials of a key by one version of a rule. A rule with other limits is
// another rule.
type deniedKey struct {
	rule    *headgate.Rule
	key     string
	denials []denial // the first ends first
}

// costsOfKey is how many denials, of different costs, are remembered of a key.
const costsOfKey = 4

// denial is the store's answer to one cost.
type denial struct {
	cost             int64
	blocked          bool // by a penalty, so that no other cost is admitted either
	decidedAt, until time.Duration
	decisions        []headgate.Decision // never changed
}

func (t *table) init(entries int) {
	start := time.Now()
	t.now = func() time.Duration { return time.Since(start) }
	t.most = max(1, entries/len(t.shards))
}

func (t *table) shard(hash uint64) *shard { return &t.shards[hash%uint64(len(t.shards))] }

func (t *table) moment() moment { return moment{t.now(), t.forgets.Load()} }

// has reports whether a key may be remembered. If not, it certainly is not.
func (t *table) has(hash uint64) bool {
	word, mark := t.shard(hash).marks.of(hash)
	return word.Load()&mark == mark
}

// find returns the store's denial of the check, if it still holds. there reports whether anything is
// remembered of the key.
func (t *table) find(hash uint64, c *headgate.Check, now time.Duration) (_ denial, there, denied bool) {
	s := t.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.entries[hash]
	if k == nil || k.rule != c.Rule || k.key != c.Key {
		return denial{}, k != nil, false
	}
	place, cost := -1, c.Units()
	for i := range k.denials {
		switch d := &k.denials[i]; {
		case now >= d.until:
		case d.cost == cost:
			return *d, true, true
		case d.blocked:
			place = i
		}
	}
	if place < 0 {
		return denial{}, true, false
	}
	return k.denials[place], true, true
}

// keep remembers a denial, unless a key was forgotten since the store was asked. That may have been
// another key of the shard; then the next denial is remembered.
func (t *table) keep(hash uint64, c *headgate.Check, asked moment, d denial) {
	s := t.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forgotten > asked.forgets {
		return
	}
	k := s.entries[hash]
	if k == nil {
		if len(s.entries) >= t.most {
			t.remove(s, s.worst(d.decidedAt))
		}
		t.count.Add(1)
		word, mark := s.marks.of(hash)
		word.Or(mark)
	}
	if k == nil || k.rule != c.Rule || k.key != c.Key {
		// The caller's text may be part of something large, such as the body of a
		// request, that would stay in memory with it.
		k = &deniedKey{rule: c.Rule, key: strings.Clone(c.Key)}
		if s.entries == nil {
			s.entries = make(map[uint64]*deniedKey)
		}
		s.entries[hash] = k
	}
	k.add(d)
}

// add remembers a denial in the place of that of the same cost, or of the one that ends first if
// there are too many.
func (k *deniedKey) add(d denial) {
	k.denials = slices.DeleteFunc(k.denials, func(o denial) bool { return o.cost == d.cost })
	if len(k.denials) == costsOfKey {
		k.denials = k.denials[1:]
	}
	k.denials = append(k.denials, d)
	slices.SortFunc(k.denials, func(a, b denial) int { return cmp.Compare(a.until, b.until) })
}

// worst returns an entry that has ended, or, of a few entries, the one that ends first.
func (s *shard) worst(now time.Duration) (worst uint64) {
	var first time.Duration
	looked := 0
	for hash, k := range s.entries {
		until := k.denials[len(k.denials)-1].until
		if looked == 0 || until < first {
			worst, first = hash, until
		}
		if looked++; first <= now || looked == 8 {
			break
		}
	}
	return worst
}

// remove removes an entry, if it is there. The shard is locked.
func (t *table) remove(s *shard, hash uint64) {
	if _, ok := s.entries[hash]; !ok {
		return
	}
	delete(s.entries, hash)
	t.count.Add(-1)
	// Its marks stay until remark, because they may also be those of other keys.
	if s.stale++; s.stale > len(s.entries)/2 {
		s.remark()
	}
}

// remark makes the marks anew. A request that looks at them meanwhile may miss a key, and then asks
// the store. The shard is locked.
func (s *shard) remark() {
	for i := range s.marks {
		s.marks[i].Store(0)
	}
	for hash := range s.entries {
		word, mark := s.marks.of(hash)
		word.Or(mark)
	}
	s.stale = 0
}

// drop forgets what is remembered of a key. Answers to calls that are under way may still be
// remembered.
func (t *table) drop(hash uint64) {
	s := t.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.remove(s, hash)
}

// forget forgets a key, and makes sure that answers to calls that are under way are not
// remembered.
func (t *table) forget(hash uint64) {
	s := t.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = t.forgets.Add(1)
	t.remove(s, hash)
}

// forgetAll forgets every key, and makes sure of the same.
func (t *table) forgetAll() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.forgotten = t.forgets.Add(1)
		t.count.Add(-int64(len(s.entries)))
		s.entries = nil
		s.remark()
		s.mu.Unlock()
	}
}
