package lease

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/internal/layer"
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
	// sickPause is how long no units are taken in advance after a call that failed or that the store
	// did not decide. Requests go to the store inside meanwhile.
	sickPause = 100 * time.Millisecond
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
	rule  *headgate.Rule
	key   string
	scope headgate.Scope
}

// hotKey is a key with many requests. The lock of its shard guards all fields.
type hotKey struct {
	name  version
	shard *keyShard
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
	end  instant          // until when they may be admitted
}

// claim is what became of one check of a request: units that were taken out of a batch, or not.
type claim struct {
	key       *hotKey         // nil if the key is not watched
	batch     *batch          // nil if no units were taken out
	fill      <-chan struct{} // closed when there may be units; nil if the store is to be asked
	era       uint64
	units     int64
	remaining int64 // units held after that
	decisions []headgate.Decision
	decidedAt time.Duration
}

// lock returns the key of a check with its shard locked. The key is nil if it is not watched.
func (l *Layer) lock(c *headgate.Check) (s *keyShard, k *hotKey, hash uint64) {
	hash = maphash.String(l.seed, c.Key) ^ c.Rule.ID()*0x9e3779b97f4a7c15
	s = &l.shards[hash>>58]
	s.mu.Lock()
	return s, s.keys[version{c.Rule, c.Key, c.Scope}], hash
}

// setAside takes the units of a check out of what is held for the key, if the check is leased. If
// there are not enough but may be soon, it returns a channel that is closed then. If isNew is true,
// the request is counted.
func (l *Layer) setAside(a *claim, c *headgate.Check, now instant, isNew bool) (fill <-chan struct{}) {
	*a = claim{}
	if c.Consistency != headgate.Leased {
		return nil
	}
	p := l.plans.Of(c.Rule)
	if p.hold == 0 {
		return nil
	}
	s, k, hash := l.lock(c)
	defer s.mu.Unlock()
	if k == nil {
		if isNew {
			a.key = l.warmUp(s, hash, p, c, now)
		}
		return nil
	}
	a.key = k
	units := c.Units()
	if isNew {
		k.asked += units
		k.cost = units
	}
	if !l.takeOut(k, a, units, now) {
		a.fill = l.fill(k, now)
		return a.fill
	}
	s.served++
	if k.left <= k.low {
		l.fill(k, now)
	}
	return nil
}

// warmUp counts a request for a key that is not watched, and begins to watch the key if there were
// enough requests.
func (l *Layer) warmUp(s *keyShard, hash uint64, p *plan, c *headgate.Check, now instant) *hotKey {
	if !l.warm.rise(hash, now.mono, p.hold) || l.closed.Load() || len(s.keys) >= max(1, l.options.MaxKeys/len(l.shards)) {
		return nil
	}
	if s.keys == nil {
		s.keys = make(map[version]*hotKey)
	}
	// The caller's string may be part of a larger one, which must not be kept alive.
	name := version{c.Rule, strings.Clone(c.Key), c.Scope}
	k := &hotKey{
		name: name, shard: s, plan: p, cost: c.Units(), own: make([]ownUse, len(p.strict.Limits())),
		check:   headgate.Check{Rule: p.strict, Key: name.key, Hints: headgate.Hints{OnError: c.OnError, Consistency: headgate.Leased, Scope: c.Scope}},
		sampled: now.mono, rate: float64(hotTakes*c.Units()) / p.hold.Seconds(),
	}
	s.keys[name] = k
	l.returns.due(now.mono + idleKey)
	return k
}

// takeOut takes units out of the oldest batch that has enough of them. It returns false if there is
// none.
func (l *Layer) takeOut(k *hotKey, a *claim, units int64, now instant) bool {
	l.retire(k, now)
	for _, b := range k.batches {
		if b.left >= units {
			b.left -= units
			k.left -= units
			a.batch, a.era, a.units, a.remaining = b, k.era, units, k.left
			a.decisions, a.decidedAt = k.decisions, k.decidedAt
			return true
		}
	}
	return false
}

// retire removes batches that are used up or have ended, and gives back their unused units.
func (l *Layer) retire(k *hotKey, now instant) {
	kept := k.batches[:0]
	for _, b := range k.batches {
		switch {
		case b.end.reached(now):
			k.left -= b.left
			l.returns.add(k, *b)
		case b.left > 0:
			kept = append(kept, b)
		}
	}
	clear(k.batches[len(kept):])
	k.batches = kept
}

// putBack returns what was set aside for a request that was not admitted, or that will be tried
// again.
func (l *Layer) putBack(claims []claim, again bool) {
	for i := range claims {
		a := &claims[i]
		if a.batch == nil {
			continue
		}
		a.key.shard.mu.Lock()
		if a.era == a.key.era {
			l.restore(a.key, a.batch, a.units)
			a.remaining = a.key.left
		}
		if again {
			a.key.shard.served--
		}
		a.key.shard.mu.Unlock()
	}
}

// restore puts units back into a batch. It gives them back to the store instead if the batch has
// ended, if the key is no longer watched, or if the key would hold more than it may.
func (l *Layer) restore(k *hotKey, b *batch, units int64) {
	if k.left+k.coming+k.returning+units > k.most || l.closed.Load() || k.shard.keys[k.name] != k || b.end.reached(l.now()) {
		l.returns.add(k, batch{left: units, at: b.at})
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
	passed := max(0, now.mono-a.decidedAt)
	for i := range a.decisions {
		d := a.decisions[i]
		d.Check, d.Shadow, d.Source, d.At = place, c.Shadow, headgate.SourceLease, a.batch.at
		d.Remaining = min(d.Remaining+a.remaining, d.Limit.Capacity())
		d.ResetAfter = max(0, d.ResetAfter-passed)
		dst = append(dst, d)
	}
	return dst
}

// noteAnswer records how much the store has left for a watched key, and whether the store has
// charged the check.
func (k *hotKey) noteAnswer(l *Layer, decisions []headgate.Decision, units int64, charged bool) {
	k.shard.mu.Lock()
	defer k.shard.mu.Unlock()
	k.remaining = leastLeft(decisions)
	if charged {
		k.charged(decisions, units, l.now())
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
	s, k, _ := l.lock(c)
	defer s.mu.Unlock()
	if k == nil {
		return 0
	}
	l.retire(k, l.now())
	return k.left
}

// forget drops the units that are held for the keys, without giving them back.
func (l *Layer) forget(checks []headgate.Check) {
	for i := range checks {
		s, k, _ := l.lock(&checks[i])
		if k != nil {
			k.era++
			l.counts.lost.Add(k.left)
			k.batches, k.left = nil, 0
			clear(k.own)
		}
		s.mu.Unlock()
	}
}

// fill begins a call that takes more units, if that is worthwhile and no such call is under way. It
// returns a channel that is closed when the call has ended, or nil if there is no call. The key's
// shard is locked.
func (l *Layer) fill(k *hotKey, now instant) <-chan struct{} {
	if k.filling != nil {
		return k.filling
	}
	if now.mono < k.notBefore || l.closed.Load() {
		return nil
	}
	n := k.size(now, max(1, l.options.Nodes()))
	if n < 2*k.cost {
		return nil
	}
	k.filling, k.coming = make(chan struct{}), n
	era := k.era
	l.fills.Go(func() { l.takeInAdvance(k, n, era) })
	return k.filling
}

// size returns how many units to take. It also sets k.most, the number of units that may be held.
// The key's shard is locked.
func (k *hotKey) size(now instant, nodes int64) int64 {
	passed := now.mono - k.sampled
	seen := float64(k.asked) / max(passed, time.Millisecond).Seconds()
	settled := passed >= k.plan.hold/16
	switch {
	case settled:
		k.rate = max(seen, (k.rate+seen)/2)
	case passed >= time.Millisecond && k.asked >= hotTakes*k.cost && seen > k.rate:
		// A sample this short may be a burst.
		k.rate = min(seen, 4*k.rate)
		settled = true
	}
	if settled {
		k.asked, k.sampled = 0, now.mono
	}
	wanted := int64(min(k.rate*k.plan.hold.Seconds()/fillPart, headgate.MaxCount))
	k.most = k.remaining / (roomPart * nodes)
	return min(wanted, k.most-k.left-k.returning)
}

// takeInAdvance makes the call that takes units.
func (l *Layer) takeInAdvance(k *hotKey, n int64, era uint64) {
	ctx, cancel := context.WithTimeout(l.calls, layer.CallWithin)
	defer cancel()
	c := k.check // never changed, so it needs no lock
	c.Cost = n
	sent := l.now()
	decisions, err := l.inner.Take(ctx, headgate.OpTake, []headgate.Check{c}, nil)
	now := l.now()

	k.shard.mu.Lock()
	defer k.shard.mu.Unlock()
	defer func() {
		close(k.filling)
		k.filling, k.coming = nil, 0
	}()
	switch {
	case err != nil || len(decisions) == 0 || decisions[0].Source != headgate.SourceStore:
		// The store, or the layer that decided instead, may have charged the units. They are not
		// given back, because they may not have been charged.
		k.notBefore = now.mono + sickPause
		if !errors.Is(err, layer.ErrNotAsked) {
			l.counts.lost.Add(n)
		}
		return
	case k.era != era:
		return // The store may have charged the units before the reset.
	}
	k.remaining = leastLeft(decisions)
	if !headgate.NewVerdict(decisions).Allowed {
		return
	}
	l.counts.leases.Add(1)
	l.counts.taken.Add(n)
	k.charged(decisions, n, now)
	limits := k.name.rule.Limits()
	span := k.plan.usable(decisions)
	for i := range decisions {
		decisions[i].Rule, decisions[i].Limit = k.name.rule, &limits[i]
	}
	b := &batch{left: n, at: decisions[0].At, end: sent.add(span)}
	if b.end.reached(now) {
		// A window is about to end, or the call took too long.
		k.notBefore = now.mono + k.plan.hold/16
	}
	k.batches, k.left = append(k.batches, b), k.left+n
	k.decisions, k.decidedAt, k.low = decisions, now.mono, n/lowPart
	l.returns.due(b.end.mono)
}
