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
	// hotTakes is the number of requests for a key within plan.hold that makes the key worth a
	// lease. With fewer requests, a lease would serve only two or three of them, and some leases
	// none.
	hotTakes = 8
	// fillPart: a lease covers the demand of 1/fillPart of plan.hold. Nobody can use the rest of a
	// lease until it has been given back, so the whole lease should be used even if the demand
	// halves.
	fillPart = 2
	// roomPart: a node holds at most 1/roomPart of its share of what the store has left.
	roomPart = 2
	// lowPart: the next lease is taken when 1/lowPart of the last one is left.
	lowPart = 4
	// warmCells is the number of cells in which requests for keys that are not watched are counted.
	warmCells = 1 << 14
)

// warmth counts requests for keys that are not watched, by the hash of the key. If two keys share a
// cell, both seem busier than they are. That costs no more than a place among the watched keys.
type warmth [warmCells]atomic.Uint32

// rise counts a request, and reports whether there were hotTakes requests within a span of time. A
// cell holds the number of the current span and a count. Several callers may change a cell at once;
// the counts that are lost then do not matter.
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

// version names the counter of one version of a rule. Units that were taken under the limits of one
// version cannot be used for another version.
type version struct {
	rule *headgate.Rule
	key  string
}

// hotKey is a key with many requests. The lock of its shard guards all fields.
type hotKey struct {
	name  version
	plan  *plan
	check headgate.Check // what the store is asked, without the cost

	own []ownUse // one for each limit of the strict rule; used for buckets only

	batches   []*batch            // in the order in which they came; those at the front end first
	left      int64               // units left in all batches
	decisions []headgate.Decision // the store's decisions about the last lease
	decidedAt time.Duration       // when they came
	low       int64               // the next lease is taken when no more than this is left

	remaining int64         // what the store has left, by its last answer
	filling   chan struct{} // closed at the end of the call that takes units; nil if there is none
	coming    int64         // units that this call takes
	most      int64         // units that may be held, as of the last lease
	notBefore time.Duration // the next lease is not taken before
	era       uint64        // how often the key was reset
	returning int64         // units that are being given back

	asked   int64         // units requested since sampled
	cost    int64         // of the last request
	sampled time.Duration // when the sample of the demand began
	rate    float64       // units requested per second
}

// batch is units that were charged together.
type batch struct {
	left int64
	at   headgate.Instant // when they were charged, on the store's clock
	sent time.Duration    // when they were asked for
	end  instant          // until when they may be admitted
}

// claim is a set of units that were taken out of batches for one check of a request.
type claim struct {
	key       *hotKey // nil if no units were taken out
	era       uint64
	from      [2]*batch
	units     [2]int64
	remaining int64 // units held after that
	decisions []headgate.Decision
	decidedAt time.Duration
}

func (l *Layer) shard(name version) (*keyShard, uint64) {
	hash := maphash.String(l.seed, name.key) ^ name.rule.ID()*0x9e3779b97f4a7c15
	return &l.shards[hash>>58], hash
}

// setAside takes the units of a check out of what is held for the key. found reports whether there
// were enough, and watched whether the key is watched. If there were not enough, fill is closed
// when there may be more; if fill is nil, the store is to be asked. If isNew is true, the request
// is counted.
func (l *Layer) setAside(a *claim, p *plan, c *headgate.Check, now instant, isNew bool) (found, watched bool, fill <-chan struct{}) {
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

// prepare counts a request for a check. If the node does not hold enough units but may soon,
// prepare returns a channel to wait for.
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

// warmUp counts a request for a key that is not watched, and begins to watch the key if there were
// enough requests.
func (l *Layer) warmUp(s *keyShard, hash uint64, name version, p *plan, c *headgate.Check, now instant) (watched bool) {
	if !l.warm.rise(hash, now.mono, p.hold) || l.closed.Load() || len(s.keys) >= max(1, l.options.MaxKeys/len(l.shards)) {
		return false
	}
	if s.keys == nil {
		s.keys = make(map[version]*hotKey)
	}
	// The caller's string may be part of a larger one, which must not be kept alive.
	name.key = strings.Clone(name.key)
	check := headgate.Check{Rule: p.strict, Key: name.key, Hints: headgate.Hints{OnError: c.OnError, Consistency: headgate.Leased}}
	s.keys[name] = &hotKey{
		name: name, plan: p, check: check, cost: c.Units(), own: make([]ownUse, len(p.strict.Limits())),
		sampled: now.mono, rate: float64(hotTakes*c.Units()) / p.hold.Seconds(),
	}
	l.keeper.due(now.mono + idleKey)
	return true
}

// takeOut takes units out of batches that have not ended, the oldest first. If the first two
// batches do not hold enough, it takes nothing and returns false.
func (l *Layer) takeOut(k *hotKey, a *claim, units int64, now instant) bool {
	l.retire(k, now)
	if k.left < units {
		return false
	}
	*a = claim{key: k, era: k.era, decisions: k.decisions, decidedAt: k.decidedAt}
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

// retire removes batches that are used up or have ended, and gives back their unused units.
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
func (l *Layer) putBack(held []claim) {
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

// restore puts units back into a batch. It gives them back to the store instead if the batch has
// ended, if the key is no longer watched, or if the key would hold more than it may.
func (l *Layer) restore(s *keyShard, k *hotKey, b *batch, units int64) {
	if k.left+k.coming+k.returning+units > k.most || l.closed.Load() || s.keys[k.name] != k || b.end.reached(l.now()) {
		rest := *b
		rest.left = units
		l.keeper.giveBack(k, &rest)
		return
	}
	b.left += units
	k.left += units
	if !slices.Contains(k.batches, b) { // The batch was used up and removed.
		k.batches = append(k.batches, b)
	}
}

// append appends the decisions about a check that was decided from held units.
func (a *claim) append(dst []headgate.Decision, c *headgate.Check, place int, now instant) []headgate.Decision {
	at := a.from[0].at
	passed := max(0, now.mono-a.decidedAt)
	for i := range a.decisions {
		d := a.decisions[i]
		d.Check, d.Shadow, d.Source, d.At = place, c.Shadow, headgate.SourceLease, at
		d.Remaining = min(d.Remaining+a.remaining, d.Limit.Capacity())
		d.ResetAfter = max(0, d.ResetAfter-passed)
		dst = append(dst, d)
	}
	return dst
}

// noteAnswer records how much the store has left for a watched key, and whether the store has
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

// charged records units that the store has charged to the key's buckets.
func (k *hotKey) charged(decisions []headgate.Decision, units int64, now instant) {
	limits := k.plan.strict.Limits()
	for i := range decisions {
		if d := &decisions[i]; d.Source == headgate.SourceStore && limits[i].Algorithm == headgate.TokenBucket {
			k.own[i].charged(&limits[i], d, units, now.mono)
		}
	}
}

// leastLeft returns the smallest Remaining of the store's decisions. It is zero if another layer
// has decided any of them.
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

// heldUnits returns how many units this node holds for a key.
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

// forget drops the units that are held for the keys, without giving them back.
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
