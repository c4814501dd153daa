package lease

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

const (
	// hotTakes is how many requests for a key within its hold make it worth a lease.
	// Below that a lease would be for two or three of them, and some for none.
	hotTakes = 8
	// fillPart is for what part of the hold a lease is to last. What is not used by
	// its end is of no use to anybody for a while, so that half as many requests as
	// there were must still use all of it.
	fillPart = 2
	// roomPart is what part of a node's share of what is left it may hold.
	roomPart = 2
	// lowPart is what part of a lease must be left when the next one is taken.
	lowPart = 4
	// warmCells is how many keys can become hot at a time.
	warmCells = 1 << 14
)

// warmth counts requests for keys that are not watched, by the hash of the key. Two keys that
// share a cell are both taken for hotter than they are. That costs a place among the watched keys,
// and nothing else.
type warmth [warmCells]atomic.Uint32

// rise counts a request, and reports whether there were hotTakes requests within a span of time. A
// cell holds the number of the current span and a count. Counts that are lost because several
// callers change a cell at once do not matter.
func (w *warmth) rise(hash uint64, now, span time.Duration) bool {
	cell := &w[hash%warmCells]
	epoch := uint32(now/span) << 8
	was := cell.Load()
	if was&^0xff != epoch {
		cell.Store(epoch | 1)
		return false
	}
	if was&0xff < hotTakes {
		was = cell.Add(1)
	}
	return was&0xff >= hotTakes
}

type keyShard struct {
	mu     sync.Mutex // guards all that follows
	keys   map[version]*hotKey
	served int64
}

// version names the counter of one version of a rule. Its units were taken under the limits of
// that version, so that they can be used for no other.
type version struct {
	rule *headgate.Rule
	key  string
}

// hotKey is a key that is asked for often. Its shard's lock guards all of it.
type hotKey struct {
	name  version
	plan  *plan
	check headgate.Check // what the store is asked, but for the cost

	own []ownUse // of the strict rule's limits; only those of buckets are kept

	batches []*batch // in the order in which they came; those at the front end first
	left    int64    // of all of them
	told    []headgate.Decision
	toldAt  time.Duration // when they were told
	low     int64         // where the next lease is taken

	remaining int64 // what the store has left, as it last said
	filling   chan struct{}
	coming    int64         // what the call that fills takes
	most      int64         // what may be held, as of the last lease
	notBefore time.Duration // when to take the next lease
	era       uint64        // how often it was forgotten
	returning int64         // units that are on their way back

	asked   int64 // units, since sampled
	cost    int64 // of the last request
	sampled time.Duration
	rate    float64 // units in a second
}

// batch is units that were charged together.
type batch struct {
	left int64
	at   headgate.Instant // when they were charged, on the store's clock
	sent time.Duration    // when they were asked for
	end  instant          // until when they may be admitted
}

// aside is units that were taken out of batches for one check of a request.
type aside struct {
	key       *hotKey // nil: none were
	era       uint64
	from      [2]*batch
	units     [2]int64
	remaining int64 // held, after that
	told      []headgate.Decision
	toldAt    time.Duration
}

func (l *Layer) shard(name version) (*keyShard, uint64) {
	hash := maphash.String(l.seed, name.key) ^ name.rule.ID()*0x9e3779b97f4a7c15
	return &l.shards[hash>>58], hash
}

// setAside takes the units of a check out of what is held, if the key is watched. If there are not
// enough, it returns a channel that is closed when there may be more, or nil if the store is to be
// asked. It counts the request if isNew is true.
func (l *Layer) setAside(a *aside, p *plan, c *headgate.Check, now instant, isNew bool) (found, watched bool, fill <-chan struct{}) {
	name := version{c.Rule, c.Key}
	s, hash := l.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[name]
	if k == nil {
		if isNew {
			watched = l.warmUp(s, hash, name, p, c, now)
		}
		return false, watched, nil
	}
	if isNew {
		k.asked += c.Units()
		k.cost = c.Units()
	}
	if !l.takeOut(k, a, c.Units(), now) {
		return false, true, l.fill(k, now)
	}
	s.served++
	if k.left <= k.low {
		l.fill(k, now)
	}
	return true, true, nil
}

// prepare counts a request for a check. If its units are not held but may be soon, it returns a
// channel to wait for.
func (l *Layer) prepare(c *headgate.Check) <-chan struct{} {
	if c.Consistency != headgate.Leased {
		return nil
	}
	p := l.plans.Of(c.Rule)
	if p.hold == 0 {
		return nil
	}
	now := l.now()
	name := version{c.Rule, c.Key}
	s, hash := l.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[name]
	if k == nil {
		l.warmUp(s, hash, name, p, c, now)
		return nil
	}
	k.asked += c.Units()
	k.cost = c.Units()
	l.retire(k, now)
	if k.left >= c.Units() {
		return nil
	}
	return l.fill(k, now)
}

// warmUp counts a request for a key that is not watched, and watches it if there
// were enough of them.
func (l *Layer) warmUp(s *keyShard, hash uint64, name version, p *plan, c *headgate.Check, now instant) (watched bool) {
	if !l.warm.rise(hash, now.mono, p.hold) || l.closed.Load() || len(s.keys) >= max(1, l.options.MaxKeys/len(l.shards)) {
		return false
	}
	if s.keys == nil {
		s.keys = make(map[version]*hotKey)
	}
	// The caller's text may be part of something large.
	name.key = strings.Clone(name.key)
	check := headgate.Check{Rule: p.strict, Key: name.key, Hints: headgate.Hints{OnError: c.OnError, Consistency: headgate.Leased}}
	s.keys[name] = &hotKey{
		name: name, plan: p, check: check, cost: c.Units(), own: make([]ownUse, len(p.strict.Limits())),
		sampled: now.mono, rate: float64(hotTakes*c.Units()) / p.hold.Seconds(),
	}
	l.keeper.due(now.mono + idleKey)
	return true
}

// takeOut takes units out of batches that have not ended, the oldest first. It reports false and
// takes nothing if the first two batches do not hold enough.
func (l *Layer) takeOut(k *hotKey, a *aside, units int64, now instant) bool {
	l.retire(k, now)
	if k.left < units {
		return false
	}
	*a = aside{key: k, era: k.era, told: k.told, toldAt: k.toldAt}
	need := units
	for i, b := range k.batches {
		if i == len(a.from) {
			break
		}
		n := min(need, b.left)
		a.from[i], a.units[i] = b, n
		need -= n
	}
	if need > 0 {
		a.key = nil
		return false
	}
	for i, b := range a.from {
		if b != nil {
			b.left -= a.units[i]
		}
	}
	k.left -= units
	a.remaining = k.left
	return true
}

// retire takes away batches that are used up or have ended. What is left of them is
// given back.
func (l *Layer) retire(k *hotKey, now instant) {
	kept := k.batches[:0]
	for _, b := range k.batches {
		switch {
		case b.end.reached(now):
			k.left -= b.left
			l.keeper.giveBack(k, b)
		case b.left > 0:
			kept = append(kept, b)
		}
	}
	clear(k.batches[len(kept):])
	k.batches = kept
}

// putBack returns what was set aside for a request that was not admitted.
func (l *Layer) putBack(held []aside) {
	for i := range held {
		a := &held[i]
		if a.key == nil {
			continue
		}
		s, _ := l.shard(a.key.name)
		s.mu.Lock()
		if a.era == a.key.era {
			for j, b := range a.from {
				if b != nil && a.units[j] > 0 {
					l.restore(s, a.key, b, a.units[j])
				}
			}
			a.remaining = a.key.left
		}
		s.mu.Unlock()
	}
}

// restore puts units back into a batch. They are given back to the store if the batch has ended,
// if the key is no longer watched, or if so many others were taken meanwhile that they are too
// many.
func (l *Layer) restore(s *keyShard, k *hotKey, b *batch, units int64) {
	if k.left+k.coming+k.returning+units > k.most || l.closed.Load() || s.keys[k.name] != k || b.end.reached(l.now()) {
		rest := *b
		rest.left = units
		l.keeper.giveBack(k, &rest)
		return
	}
	b.left += units
	k.left += units
	if !slices.Contains(k.batches, b) { // It was used up.
		k.batches = append(k.batches, b)
	}
}

// append appends the decisions of a check that was decided here.
func (a *aside) append(dst []headgate.Decision, c *headgate.Check, place int, now instant) []headgate.Decision {
	at := a.from[0].at
	passed := max(0, now.mono-a.toldAt)
	for i := range a.told {
		d := a.told[i]
		d.Check, d.Shadow, d.Source, d.At = place, c.Shadow, headgate.SourceLease, at
		d.Remaining = min(d.Remaining+a.remaining, d.Limit.Capacity())
		d.ResetAfter = max(0, d.ResetAfter-passed)
		dst = append(dst, d)
	}
	return dst
}

// noteAnswer notes what the store has left of a key, if that is watched, and whether it has
// charged the check.
func (l *Layer) noteAnswer(c *headgate.Check, decisions []headgate.Decision, charged bool) {
	name := version{c.Rule, c.Key}
	s, _ := l.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.keys[name]; k != nil {
		k.remaining = leastLeft(decisions)
		if charged {
			k.charged(decisions, c.Units(), l.now())
		}
	}
}

// charged notes units that the store has charged to the buckets of the key.
func (k *hotKey) charged(decisions []headgate.Decision, units int64, now instant) {
	limits := k.plan.strict.Limits()
	for i := range decisions {
		if d := &decisions[i]; d.Source == headgate.SourceStore && limits[i].Algorithm == headgate.TokenBucket {
			k.own[i].charged(&limits[i], d, units, now.mono)
		}
	}
}

// leastLeft is how much the store has left by its own decisions. It is zero if anybody else has
// decided a limit.
func leastLeft(decisions []headgate.Decision) int64 {
	least := int64(headgate.MaxCount)
	for i := range decisions {
		if decisions[i].Source != headgate.SourceStore {
			return 0
		}
		least = min(least, decisions[i].Remaining)
	}
	return least
}

// heldUnits is how many units of a key are held.
func (l *Layer) heldUnits(c *headgate.Check) int64 {
	name := version{c.Rule, c.Key}
	s, _ := l.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[name]
	if k == nil {
		return 0
	}
	l.retire(k, l.now())
	return k.left
}

// forget drops what is held of the keys, and gives nothing back.
func (l *Layer) forget(checks []headgate.Check) {
	for i := range checks {
		name := version{checks[i].Rule, checks[i].Key}
		s, _ := l.shard(name)
		s.mu.Lock()
		if k := s.keys[name]; k != nil {
			k.era++
			l.counts.lost.Add(k.left)
			k.batches, k.left = nil, 0
			clear(k.own)
		}
		s.mu.Unlock()
	}
}
