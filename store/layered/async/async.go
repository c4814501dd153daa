package async

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// The defaults of [Options].
const (
	DefaultInterval = 100 * time.Millisecond
	DefaultPart     = 1.0 / 32
	DefaultMaxKeys  = 1 << 16
)

// staleAfter is the number of intervals after which an answer of the store is too old to decide
// from.
const staleAfter = 3

// Options change a [Layer]. The zero Options are good for a server.
type Options struct {
	// Interval is the time between two reports: 1 ms to 1 min. Zero means DefaultInterval. All
	// nodes should have the same interval.
	Interval time.Duration
	// Part is the share of a key's remaining units that one node admits at most until it hears from
	// the store again: above 0, up to 1. A request that exceeds this share asks the store. A
	// smaller Part is more exact and asks more often. Zero means DefaultPart.
	Part float64
	// MaxKeys is how many pairs of rule and key the layer knows at the same time. All others are
	// counted strictly. Zero means DefaultMaxKeys.
	MaxKeys int
}

// Layer decides checks from what it knows, and tells the store inside afterwards. Make one
// with [New]. It is safe for concurrent use.
type Layer struct {
	inner    headgate.Store
	options  Options
	seed     maphash.Seed
	start    time.Time    // what times are counted from
	next     atomic.Int64 // when the next report is due, in ns since start
	most     int          // entries in a shard
	reporter reporter
	closed   atomic.Bool
	scratch  layer.Scratches[part]
	shards   [64]keyShard
	seen     [1 << 16]atomic.Uint32 // tags of recently requested keys
}

// keyShard is a part of the keys that are known.
type keyShard struct {
	mu      sync.Mutex // guards what follows
	entries map[layer.Counter]*entry
	closed  bool

	local, asked int64 // checks decided from memory, and checks decided by the store
}

// New returns a layer around a store. Close the layer when it is no longer needed; Close reports
// the units that were admitted last.
func New(inner headgate.Store, options Options) (*Layer, error) {
	o := options
	o.Interval, o.Part, o.MaxKeys = cmp.Or(o.Interval, DefaultInterval), cmp.Or(o.Part, DefaultPart), cmp.Or(o.MaxKeys, DefaultMaxKeys)
	var problems headgate.Problems
	if inner == nil {
		problems.Add("store", "it needs a store")
	}
	if o.Interval < time.Millisecond || o.Interval > time.Minute {
		problems.Add("interval", "interval is %v, must be %v to %v", o.Interval, time.Millisecond, time.Minute)
	}
	if !(o.Part > 0 && o.Part <= 1) {
		problems.Add("part", "part is %v, must be above 0, up to 1", o.Part)
	}
	if o.MaxKeys < 0 {
		problems.Add("max_keys", "max keys is %d, must be 1 or more", o.MaxKeys)
	}
	if err := problems.Err("async"); err != nil {
		return nil, err
	}
	a := &Layer{inner: inner, options: o, seed: maphash.MakeSeed(), start: time.Now()}
	a.most = max(1, o.MaxKeys/len(a.shards))
	for i := range a.shards {
		a.shards[i].entries = make(map[layer.Counter]*entry)
	}
	a.reporter.begin(a)
	return a, nil
}

// Store returns the store to ask. It is a [headgate.Ledger] if the store inside is one; requests
// that are remembered, and their settlements, then go to the store inside.
func (a *Layer) Store() headgate.Store {
	if inner, ok := a.inner.(headgate.Ledger); ok {
		return &ledger{inner, outer{a}}
	}
	return outer{a}
}

// outer is the store inside, with decisions from memory in front of it.
type outer struct{ *Layer }

// ledger is a ledger with decisions from memory in front of it.
type ledger struct {
	headgate.Ledger
	store outer
}

// Take implements [headgate.Store].
func (l *ledger) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return l.store.Take(ctx, op, checks, dst)
}

// Stats count what a layer has done since it was made. Keys, Unreported and Returning describe the
// present moment instead.
type Stats struct {
	// Keys is how many pairs of rule and key are known. Unreported is how many units of these keys
	// were admitted here and not reported to the store yet.
	Keys, Unreported int64
	// Local is how many checks were decided from memory. Asked is how many the store decided
	// because too little was known here.
	Local, Asked int64
	// Reports is how many calls were made in the background. Failed is how many of them got no
	// answer.
	Reports, Failed int64
	// Returning is how many units are to be given back with one of the next reports.
	Returning int64
	// Doubtful is how many units were reported in calls that ended at their deadline. The store may
	// not have counted them. They are not reported again.
	Doubtful int64
}

// Stats returns the counts. It visits every key in turn.
func (a *Layer) Stats() Stats {
	st := Stats{Reports: a.reporter.made.Load(), Failed: a.reporter.failed.Load(), Doubtful: a.reporter.doubtful.Load()}
	for i := range a.shards {
		s := &a.shards[i]
		s.mu.Lock()
		st.Keys += int64(len(s.entries))
		st.Local += s.local
		st.Asked += s.asked
		for _, e := range s.entries {
			st.Unreported += e.unreported + e.pending
			for _, back := range e.refunds {
				st.Returning += back.units
			}
		}
		s.mu.Unlock()
	}
	return st
}

// Take implements [headgate.Store]. If a check is denied from memory, Take does not ask the store,
// and the checks that only the store can decide have no decision. If a rule of the request has a
// penalty, Take asks the store in any case, because the penalty counts denials. For a single check
// that is decided from memory, Take does not allocate if dst has room.
func (a outer) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	concerned := false
	for i := range checks {
		concerned = concerned || countsAsync(&checks[i])
	}
	if !concerned || op > headgate.OpReset {
		return a.inner.Take(ctx, op, checks, dst)
	}
	if op == headgate.OpReset {
		out, err := a.inner.Take(ctx, op, checks, dst)
		if err == nil {
			a.forget(checks)
		}
		return out, err
	}
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	if op == headgate.OpRefund {
		return a.refund(ctx, checks, dst)
	}
	return a.decide(ctx, op, checks, dst)
}

// countsAsync reports whether a check may be decided from memory. A rule is counted strictly
// if any of its limits needs the store's answer to each request.
func countsAsync(c *headgate.Check) bool {
	if c.Consistency != headgate.Async || c.Rule == nil {
		return false
	}
	limits := c.Rule.Limits()
	for i := range limits {
		if !c.Consistency.Counts(limits[i].Algorithm) {
			return false
		}
	}
	return true
}

// now returns the time since the layer was made, by the monotonic clock.
func (a *Layer) now() time.Duration { return time.Since(a.start) }

// untilNext returns the time until the next report.
func (a *Layer) untilNext(now time.Duration) time.Duration {
	return max(0, time.Duration(a.next.Load())-now)
}

func (a *Layer) hash(c *headgate.Check) uint64 {
	return maphash.String(a.seed, c.Key) ^ c.Rule.ID()
}

func (a *Layer) shard(hash uint64) *keyShard { return &a.shards[hash%uint64(len(a.shards))] }

// find returns the entry of a check's counter, or nil. The shard is locked.
func (s *keyShard) find(c *headgate.Check, part float64) *entry {
	e := s.entries[layer.CounterOf(c)]
	switch {
	case e == nil || e.rule == c.Rule:
		return e
	case e.rule.Name() != c.Rule.Name():
		return nil // Two rules have the same hash; the second one is counted strictly.
	case !sameLimits(e.rule, c.Rule):
		e.init(c.Rule, part) // Unreported units will be charged to the new limits.
	}
	return e
}

// askedLately reports whether a key was requested recently, and records the present request. A key
// without a recent request is not worth an entry.
func (a *Layer) askedLately(hash uint64) bool {
	tag := uint32(hash>>32) | 1
	return a.seen[hash/uint64(len(a.shards))%uint64(len(a.seen))].Swap(tag) == tag
}

// entryFor returns the entry of a check's counter, and makes one if there is none. It returns nil
// if there is no room for a new entry. The shard is locked.
func (a *Layer) entryFor(s *keyShard, c *headgate.Check) *entry {
	if e := s.find(c, a.options.Part); e != nil || s.closed {
		return e
	}
	name := layer.CounterOf(c).Own()
	if len(s.entries) >= a.most || s.entries[name] != nil {
		return nil
	}
	e := new(entry)
	e.init(c.Rule, a.options.Part)
	s.entries[name] = e
	return e
}

// forget drops what is known about keys that were reset, together with the units and refunds that
// were still to be sent to the store.
func (a *Layer) forget(checks []headgate.Check) {
	for i := range checks {
		s := a.shard(a.hash(&checks[i]))
		s.mu.Lock()
		if e := s.find(&checks[i], a.options.Part); e != nil {
			e.forgetAnswer(a.options.Part)
			e.unreported, e.doubtful, e.refunds = 0, 0, nil
			e.resets++
		}
		s.mu.Unlock()
	}
}

// part is the state of one check of a request.
type part struct {
	hash     uint64
	entry    *entry // nil if nothing is known, or the check is strict
	async    bool
	outcome  outcome
	held     int64 // units of this request that are pending until it is decided
	carried  int64 // units of earlier requests that are reported together with this one
	resets   uint32
	from, to int // its decisions among the local ones
}

// decide takes or peeks. What can be decided from memory is decided first, and its units are set
// aside. Then the store decides the other checks. All checks are charged or none. For a refund, decide
// looks up how the limits stand, wherever that is known.
func (a *Layer) decide(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	penalized, several := false, len(checks) > 1
	for i := range checks {
		penalized = penalized || several && op == headgate.OpTake && layer.Penalizes(checks[i].Rule)
	}
	var first part
	if !several {
		if dst = a.fromMemory(op, &checks[0], 0, &first, dst, false, false); first.outcome != askStore {
			return dst, nil
		}
		if first.entry == nil && op != headgate.OpRefund && !a.askedLately(first.hash) {
			a.carryUnreported(op, &checks[0], &first)
			return a.inner.Take(ctx, op, checks, dst) // A rare key takes no memory.
		}
	}
	s := a.scratch.Get()
	defer a.scratch.Put(s)
	refused := false
	for i := range checks {
		s.Parts = append(s.Parts, first)
		p := &s.Parts[i]
		if several {
			s.Local = a.fromMemory(op, &checks[i], i, p, s.Local, true, penalized)
		}
		refused = refused || p.outcome == deny && !checks[i].Shadow
	}
	if refused {
		a.settleLocal(checks, s, false, false)
		return append(dst, s.Local...), nil
	}
	for i := range checks {
		if p := &s.Parts[i]; p.outcome == askStore {
			s.Checks = append(s.Checks, checks[i])
			a.carryUnreported(op, &s.Checks[len(s.Checks)-1], p)
		}
	}
	admitted := true
	began := a.now()
	if len(s.Checks) > 0 {
		asked := op
		if op == headgate.OpRefund {
			asked = headgate.OpPeek
		}
		var err error
		if s.Decisions, err = a.inner.Take(ctx, asked, s.Checks, s.Decisions); err != nil {
			a.settleLocal(checks, s, false, true)
			return dst, err
		}
		if op == headgate.OpTake {
			_, admitted = layer.Charged(s.Decisions)
		}
	}
	a.settleLocal(checks, s, admitted, false)
	return a.merge(op, checks, dst, s, admitted, began), nil
}

// fromMemory decides a check from memory if it can, and appends its decisions. If the request has
// several checks, the units are pending until all of it is decided. penalized says that a rule of the
// request has a penalty. Then fromMemory leaves denials to the store, because the penalty has to
// count them.
func (a *Layer) fromMemory(op headgate.Op, c *headgate.Check, place int, p *part, dst []headgate.Decision, several, penalized bool) []headgate.Decision {
	if p.async = countsAsync(c); !p.async {
		return dst
	}
	p.hash = a.hash(c)
	shard := a.shard(p.hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	e := shard.find(c, a.options.Part)
	if e == nil || shard.closed {
		return dst
	}
	now := a.now()
	p.entry, p.resets = e, e.resets
	e.onError, e.scope = c.OnError, c.Scope
	if op != headgate.OpRefund {
		p.outcome = e.decide(c.Units(), &a.options, now)
	} else if now < e.goodUntil {
		p.outcome = admit
	}
	if p.outcome == deny && penalized {
		p.outcome = askStore
	}
	if p.outcome == askStore {
		return dst
	}
	shard.local++
	e.asked = true
	charged := p.outcome == admit && op == headgate.OpTake
	switch {
	case charged && several:
		p.held = c.Units()
		e.pending += p.held
	case charged:
		e.unreported += c.Units()
	}
	p.from = len(dst)
	dst = e.describe(dst, c, place, charged, p.held, &a.options, now, a.untilNext(now))
	p.to = len(dst)
	return dst
}

// carryUnreported adds the key's unreported units to a check that goes to the store, so that the
// store's answer takes them into account.
func (a *Layer) carryUnreported(op headgate.Op, c *headgate.Check, p *part) {
	if !p.async {
		return
	}
	shard := a.shard(p.hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.asked++
	e := p.entry
	if e == nil || op != headgate.OpTake {
		return
	}
	p.held = c.Units()
	// After a failed call the store may already have counted them.
	if more := e.unreported; more > 0 && !e.callFailed && p.held+more <= e.capacity() {
		p.carried = more
		e.unreported -= more
		c.Cost = p.held + more
	}
	e.pending += p.held + p.carried
}

// capacity is the largest cost that fits all limits of the key.
func (e *entry) capacity() int64 {
	least := int64(headgate.MaxCount)
	limits := e.rule.Limits()
	for i := range limits {
		least = min(least, limits[i].Capacity())
	}
	return least
}

// settle books the units that were pending for a check. reported says that the store has charged
// them, and admitted that they are still to be reported. The shard is locked.
func (p *part) settle(reported, admitted bool) {
	e := p.entry
	e.pending -= p.held + p.carried
	if e.resets != p.resets || reported {
		return
	}
	e.unreported += p.carried
	if admitted {
		e.unreported += p.held
	}
}

// settleLocal books or gives up the units of the checks that were decided from memory. With failed,
// the store has not decided the others, and they are given up too.
func (a *Layer) settleLocal(checks []headgate.Check, s *layer.Scratch[part], admitted, failed bool) {
	for i := range s.Parts {
		p := &s.Parts[i]
		if p.entry == nil || p.held == 0 && !failed || p.outcome == askStore && !failed {
			continue
		}
		shard := a.shard(p.hash)
		shard.mu.Lock()
		p.settle(false, admitted)
		p.entry.callFailed = p.entry.callFailed || failed && p.outcome == askStore
		shard.mu.Unlock()
		for j := p.from; j < p.to && !admitted; j++ {
			d := &s.Local[j]
			d.Remaining = min(d.Remaining+checks[i].Units(), d.Limit.Capacity())
		}
	}
}

// merge learns from the store's decisions, and appends all decisions in the order of the checks.
func (a *Layer) merge(op headgate.Op, checks []headgate.Check, dst []headgate.Decision, s *layer.Scratch[part], admitted bool, began time.Duration) []headgate.Decision {
	now := a.now()
	rest := s.Decisions
	asked := 0
	for i := range s.Parts {
		p := &s.Parts[i]
		if p.outcome != askStore {
			dst = append(dst, s.Local[p.from:p.to]...)
			continue
		}
		var own []headgate.Decision
		own, rest = layer.Of(asked, rest)
		fits := !slices.ContainsFunc(own, func(d headgate.Decision) bool { return !d.Allowed })
		asked++
		if p.async && (p.entry != nil || a.askedLately(p.hash)) {
			a.settleAsked(op, &checks[i], p, own, admitted && fits && op == headgate.OpTake, began, now)
		}
		for j := range own {
			own[j].Check = i
		}
		dst = append(dst, own...)
	}
	return dst
}

// settleAsked handles the store's answer about one check. It learns from the answer, books or
// returns the units that were pending, and removes the effect of the carried units from the
// decisions.
func (a *Layer) settleAsked(op headgate.Op, c *headgate.Check, p *part, decisions []headgate.Decision, charged bool, began, now time.Duration) {
	shard := a.shard(p.hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	e := p.entry
	uncounted := nobodyCounts(decisions)
	charged = charged && !uncounted
	units := int64(0)
	if charged {
		units = c.Units() + p.carried
	}
	if e != nil {
		p.settle(charged, false)
		e.callFailed = e.callFailed || uncounted
		if e.resets != p.resets {
			return
		}
	} else if e = a.entryFor(shard, c); e == nil {
		return
	}
	e.learn(decisions, c.Units(), units, &a.options, a.options.pause(), began, now)
	if charged {
		return
	}
	for i := range decisions {
		d := &decisions[i]
		d.Remaining = max(0, d.Remaining-e.unreported)
		if d.RetryAfter > 0 {
			d.RetryAfter = max(d.RetryAfter, a.options.pause())
		}
		if op == headgate.OpPeek && d.Allowed && d.Remaining < c.Units() {
			d.Allowed, d.RetryAfter = false, max(a.untilNext(now), time.Microsecond)
		}
	}
}
