package async

import (
	"cmp"
	"context"
	"hash/maphash"
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
	pool     sync.Pool // of *scratch
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
	a.pool.New = func() any { return new(scratch) }
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
	if len(checks) == 1 && op != headgate.OpRefund {
		hash := a.hash(&checks[0])
		out, known, decided := a.takeSingle(op, hash, &checks[0], dst)
		switch {
		case decided:
			return out, nil
		case !known:
			return a.askFirst(ctx, op, hash, checks, dst)
		}
	}
	return a.takeSeveral(ctx, op, checks, dst)
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

// takeSingle decides one check from memory if it can. known reports whether the key has an entry.
func (a *Layer) takeSingle(op headgate.Op, hash uint64, c *headgate.Check, dst []headgate.Decision) (_ []headgate.Decision, known, decided bool) {
	s := a.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(c, a.options.Part)
	if e == nil || s.closed {
		s.asked++
		return dst, false, false
	}
	now := a.now()
	result := e.decide(c.Units(), &a.options, now)
	if result == askStore {
		return dst, true, false
	}
	s.local++
	e.asked, e.onError = true, c.OnError
	charged := result == admit && op == headgate.OpTake
	if charged {
		e.unreported += c.Units()
	}
	return e.describe(dst, c, 0, charged, 0, &a.options, now, a.untilNext(now)), true, true
}

// askFirst lets the store decide one check whose key has no entry. It remembers the answer only if
// the key was requested recently, so that rare keys take no memory.
func (a *Layer) askFirst(ctx context.Context, op headgate.Op, hash uint64, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if !a.askedLately(hash) {
		return a.inner.Take(ctx, op, checks, dst)
	}
	began := a.now()
	out, err := a.inner.Take(ctx, op, checks, dst)
	if err != nil {
		return out, err
	}
	decisions := out[len(dst):]
	held, _ := layer.Charged(decisions)
	a.settleAsked(op, &checks[0], &part{hash: hash}, decisions, op == headgate.OpTake && held != 0, began, a.now())
	return out, nil
}
