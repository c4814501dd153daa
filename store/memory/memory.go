package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// The bounds of [MaxBytes].
const (
	// DefaultMaxBytes is the memory that counters may take by default: 512 MiB, enough for some
	// eight to ten million keys.
	DefaultMaxBytes = 512 << 20
	// MinMaxBytes is the smallest bound.
	MinMaxBytes = 1 << 20
)

// shards is a power of two, large enough that two cores rarely need the same shard.
const (
	shardBits = 8
	shards    = 1 << shardBits
)

// Store keeps counters in this process. It is safe for concurrent use. Make one
// with [New].
type Store struct {
	shards  [shards]shard // the first field, so that shards begin at cache lines
	views   [shards]atomic.Pointer[view]
	origin  headgate.Instant // when the store was made
	seed    maphash.Seed
	clock   func() int64 // nil: own
	own     *clock
	budget  budget
	ledger  ledger
	permits permits
}

// Option changes a [Store] that is being made.
type Option func(*settings)

type settings struct {
	maxBytes int64
	clock    func() int64
	steady   bool // the clock never steps back; for tests
}

// MaxBytes bounds the memory of all counters together. The package comment says what happens at
// the bound. Values below MinMaxBytes are raised to it.
func MaxBytes(n int64) Option {
	return func(s *settings) { s.maxBytes = max(n, MinMaxBytes) }
}

// Clock makes the store decide by another clock, in microseconds since the Unix epoch. It is
// for tests, and for replaying recorded traffic. The function must be safe for concurrent use.
func Clock(micros func() int64) Option {
	return func(s *settings) { s.clock = micros }
}

// New returns an empty store.
func New(options ...Option) *Store {
	set := settings{maxBytes: DefaultMaxBytes}
	for _, o := range options {
		o(&set)
	}
	s := &Store{seed: maphash.MakeSeed(), clock: set.clock, own: newClock()}
	s.budget.max, s.budget.shards = set.maxBytes, s.shards[:]
	s.budget.steady = set.clock == nil || set.steady
	s.origin = s.clockNow()
	for i := range s.shards {
		s.shards[i].budget, s.shards[i].view, s.shards[i].table.origin = &s.budget, &s.views[i], s.origin
		s.shards[i].wall = new(wall)
		s.shards[i].resize(minSize, 0, 0)
		s.shards[i].show()
	}
	s.ledger.init(set.maxBytes)
	s.permits.most = set.maxBytes / permitShare
	return s
}

// inline is how many limits a request may have before Take needs the heap.
const inline = 8

// step is what take knows about one limit of a request between deciding and charging.
type step struct {
	hash   uint64
	limit  *headgate.Limit
	state  algorithm.Counter     // advanced to now
	facts  algorithm.WindowFacts // in place of state, for a sliding window
	check  int
	fits   bool
	first  bool // the first sliding window of its rule, which charges the log
	shared bool // the key shares the counter with others, because memory is full
}

// Take implements [headgate.Store]. If dst has room, it allocates only when tables or logs grow.
func (s *Store) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	c := &checks[0]
	if op == headgate.OpTake && len(checks) == 1 && len(c.Rule.Limits()) == 1 {
		dst = append(dst, headgate.Decision{Rule: c.Rule, Limit: &c.Rule.Limits()[0], Shadow: c.Shadow})
		d := &dst[len(dst)-1]
		var err error
		d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At, err = s.TakeSingle(ctx, c.Rule, c.Key, c.Cost)
		return dst, err
	}
	s.catchUp()
	if len(checks) != 1 {
		return s.takeSeveral(op, checks, dst), nil
	}
	hash := s.hash(c.Rule, c.Key)
	s.fetch(c.Rule, hash)
	now := s.read()
	sh := s.shardOf(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return s.take(op, checks, []uint64{hash}, s.timeIn(now, sh), dst), nil
}

// hasWord reports whether the buckets of a limit may be open entries.
func (s *Store) hasWord(l *headgate.Limit) bool { return s.budget.steady && algorithm.HasWord(l) }

// takeSlow takes a check whose rule has one limit, under the lock. hash is that of the check.
func (s *Store) takeSlow(c *headgate.Check, hash uint64, d *headgate.Decision) {
	l := &c.Rule.Limits()[0]
	own := counterOf(hash, slotOf(l))
	s.views[hash>>(64-shardBits)].Load().prefetch(own)
	now := s.read()
	sh := s.shardOf(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now = s.timeIn(now, sh)
	if s.hasWord(l) {
		// Callers without the lock may have used the counter meanwhile, by a later reading of the
		// clock. From here on they do not.
		sh.hold(sh.table.find(own), l, now)
		now = s.timeIn(s.read(), sh)
	}
	if l.Algorithm == headgate.SlidingWindow || !sh.takeOne(c, l, hash, own, now, d) {
		checks, hashes, room := [1]headgate.Check{*c}, [1]uint64{hash}, [1]headgate.Decision{}
		*d = s.takeAny(headgate.OpTake, checks[:], hashes[:], now, room[:0])[0]
	}
}

// takeSeveral is Take for any number of checks.
func (s *Store) takeSeveral(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) []headgate.Decision {
	var l locked
	s.lock(checks, &l)
	defer s.unlock(&l)
	return s.take(op, checks, l.hashes[:len(checks)], l.now, dst)
}

// locked are the shards that lock has locked.
type locked struct {
	hashes [headgate.MaxChecks]uint64 // one for each check
	order  [headgate.MaxChecks]uint8  // the indices of the shards, each once
	n      int                        // the number of shards
	now    headgate.Instant
}

// lock locks every shard that the checks need, always in the same order, so that two requests
// cannot wait for each other. It determines one time for all shards: the latest that any of them
// has seen.
func (s *Store) lock(checks []headgate.Check, l *locked) {
	for i := range checks {
		l.hashes[i] = s.hash(checks[i].Rule, checks[i].Key)
		l.order[i] = uint8(l.hashes[i] >> (64 - shardBits))
		s.fetch(checks[i].Rule, l.hashes[i])
	}
	order := l.order[:len(checks)]
	slices.Sort(order)
	l.n = len(slices.Compact(order))
	for _, i := range l.order[:l.n] {
		s.shards[i].mu.Lock()
	}
	l.now = s.read()
	for _, i := range l.order[:l.n] {
		l.now = s.timeIn(l.now, &s.shards[i])
	}
}

func (s *Store) unlock(l *locked) {
	for _, i := range l.order[:l.n] {
		s.shards[i].mu.Unlock()
	}
}

// take decides and, if every limit agrees, charges. The shards are locked.
func (s *Store) take(op headgate.Op, checks []headgate.Check, hashes []uint64, now headgate.Instant, dst []headgate.Decision) []headgate.Decision {
	if op == headgate.OpTake {
		if decided, plain := s.takePlain(checks, hashes, now, dst); plain {
			return decided
		}
	}
	return s.takeAny(op, checks, hashes, now, dst)
}

// takeAny is take for any request.
func (s *Store) takeAny(op headgate.Op, checks []headgate.Check, hashes []uint64, now headgate.Instant, dst []headgate.Decision) []headgate.Decision {
	var room [inline]step
	steps := room[:0]
	admitted := true
	var (
		refused  uint64 // a bit for each check that a limit denies
		punished uint64 // a bit for each check that a limit other than a penalty denies
		further  int    // entries that are needed in addition to one for each limit
	)
	for i := range checks {
		c := &checks[i]
		sh := s.shardOf(hashes[i])
		limits := c.Rule.Limits()
		if op == headgate.OpReset {
			sh.reset(c.Rule, hashes[i])
			continue
		}
		reserved := countersIn(sh, s, checks, hashes)
		sh.reserve(reserved+further, now)
		if op == headgate.OpCharge {
			dst = sh.settleAll(c, i, hashes[i], c.Units(), nil, now, dst)
			continue
		}
		first := true // until the rule's first sliding window; all of them have one log
		for j := range limits {
			st := step{limit: &limits[j], check: i}
			if st.limit.Algorithm == headgate.SlidingWindow {
				st.first, first = first, false
				sh.lookAtLog(&st, c, hashes[i], now)
			} else {
				further += sh.lookAtState(&st, c, hashes[i], reserved+further, now)
			}
			if !st.fits {
				refused |= 1 << i
				admitted = admitted && c.Shadow
				if st.limit.Algorithm != headgate.Penalty {
					punished |= 1 << i
				}
			}
			steps = append(steps, st)
		}
	}
	if refused != 0 && s.outrun(hashes) {
		now = s.read()
		for _, hash := range hashes {
			now = s.timeIn(now, s.shardOf(hash))
		}
		return s.takeAny(op, checks, hashes, now, dst)
	}
	charge := op == headgate.OpTake && admitted
	for i := range steps {
		st := &steps[i]
		c := &checks[st.check]
		sh := s.shardOf(hashes[st.check])
		dst = append(dst, headgate.Decision{Rule: c.Rule, Check: st.check, Shadow: c.Shadow})
		d := &dst[len(dst)-1]
		charge := charge && refused&(1<<st.check) == 0
		if charge && st.shared {
			sh.charging(st, now)
		}
		if st.limit.Algorithm == headgate.SlidingWindow {
			sh.stepLog(st, op, charge, c, now, d)
			continue
		}
		// A key that shares a counter is not punished for the denials of other keys.
		punish := op == headgate.OpTake && st.limit.Algorithm == headgate.Penalty && st.fits && punished&(1<<st.check) != 0 && !st.shared
		sh.stepState(st, op, charge, punish, c, now, d)
	}
	return dst
}

// outrun reports whether callers without the lock may have used a counter of these keys after the
// clock was read for this decision. If so, a denial is not reliable.
func (s *Store) outrun(hashes []uint64) bool {
	for _, hash := range hashes {
		if s.shardOf(hash).outrun {
			return true
		}
	}
	return false
}

// hash returns the identity of a key's counters under a rule; counterOf combines it with a limit's
// slot. Its high bits choose the shard. The key's hash is seeded, so it stays evenly spread after
// it was combined with the constant of a rule.
func (s *Store) hash(rule *headgate.Rule, key string) uint64 {
	return maphash.String(s.seed, key) ^ rule.ID()*0x9e3779b97f4a7c15
}

// fetch prefetches the memory of a key's counters; see view.
func (s *Store) fetch(rule *headgate.Rule, hash uint64) {
	limits, v := rule.Limits(), s.views[hash>>(64-shardBits)].Load()
	for i := range limits {
		v.prefetch(counterOf(hash, slotOf(&limits[i])))
	}
}

// countersIn returns an upper bound for the number of the request's counters in the shard.
func countersIn(sh *shard, s *Store, checks []headgate.Check, hashes []uint64) int {
	n := 0
	for i := range checks {
		if s.shardOf(hashes[i]) == sh {
			n += len(checks[i].Rule.Limits())
		}
	}
	return n
}

func (s *Store) shardOf(hash uint64) *shard { return &s.shards[hash>>(64-shardBits)] }

// logSlot is the slot of a rule's log. Other counters have Limit.Slot.
const logSlot = 1

// counterOf returns the identity of the counter in a slot, given that of all counters of the key,
// whose high bits are the same in the whole shard. It is never 0.
func counterOf(hash, slot uint64) uint64 {
	return bits.RotateLeft64(hash^slot*0x9e3779b97f4a7c15, shardBits) | 1
}

// mix combines two hashes into one that is never 0.
func mix(a, b uint64) uint64 {
	h := (a ^ b*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd
	h ^= h >> 32
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 29
	return h | 1
}

// Stats are numbers about a store. Shared and Merged count since the store was made; the others
// describe the present moment.
type Stats struct {
	// Counters is how many counters are held, including idle ones that have not been dropped yet.
	Counters int
	// Logs is how many of the counters are logs of sliding windows.
	Logs int
	// Bytes is the memory that the counters take, and MaxBytes its bound.
	Bytes, MaxBytes int64
	// Shared is how many decisions were made on shared counters because memory was full.
	Shared uint64
	// Merged is how many times units were added to the newest entry of a log because memory was
	// full.
	Merged uint64
}

// Stats returns the store's numbers. It visits every shard in turn.
func (s *Store) Stats() Stats {
	var all Stats
	for i := range s.shards {
		s.shards[i].addTo(&all)
	}
	all.MaxBytes = s.budget.max
	all.Bytes = s.budget.tables.Load() + s.budget.logs.Load()
	return all
}

// String describes the store in a line for logs.
func (s *Store) String() string {
	return fmt.Sprintf("memory (at most %d MiB)", s.budget.max>>20)
}

// Now returns the time by the store's clock.
func (s *Store) Now() time.Time {
	now := s.clockNow()
	if s.clock != nil {
		return now.Time()
	}
	return s.own.wallAt(now).shown(now).Time()
}
