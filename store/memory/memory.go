package memory

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
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
	// shardBytes is the memory of a shard in which the largest request has room, with 1024 counters.
	shardBytes = 64 << 10
)

// Store keeps counters in this process. It is safe for concurrent use. Make one
// with [New].
type Store struct {
	shards    [shards]shard // the first field, so that shards begin at cache lines
	views     [shards]atomic.Pointer[view]
	seed      maphash.Seed
	byRule    uint64       // the bits of a hash that depend on the rule; see New
	clock     func() int64 // nil: own
	own       *clock
	steady    bool // the clock never steps back, so counters may be Words
	budget    budget
	ledger    ledger
	permits   permits
	documents documents
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
	s.steady = set.clock == nil || set.steady
	// All counters of a key are in one shard, so that a request for several rules locks one. In a small
	// store they are scattered, because one shard has no room for them.
	if s.byRule = math.MaxUint64; set.maxBytes >= shards*shardBytes {
		s.byRule >>= shardBits
	}
	for i := range s.shards {
		s.shards[i].budget, s.shards[i].view = &s.budget, &s.views[i]
		s.shards[i].wall, s.shards[i].words = s.own.wall.Load(), s.steady
		// The origin of the Words is set when the shard is locked first, to the time that it is then:
		// in a bubble of testing/synctest that may be decades before the store was made outside of it.
		s.shards[i].resize(minSize, 0, 0)
		s.shards[i].show()
	}
	s.ledger.init(set.maxBytes)
	s.permits.most, s.documents.most = set.maxBytes/permitShare, set.maxBytes/documentShare
	return s
}

// hash returns the identity of a key's counters under a rule; counterOf combines it with a limit's
// slot. Its high bits choose the shard. The key's hash is seeded, so it stays evenly spread after it
// was combined with the constant of a rule.
func (s *Store) hash(rule *headgate.Rule, key string) uint64 {
	return s.under(rule, maphash.String(s.seed, key))
}

// under is hash for a key with the given hash.
func (s *Store) under(rule *headgate.Rule, key uint64) uint64 {
	return key ^ rule.ID()*0x9e3779b97f4a7c15&s.byRule
}

// scattered reports whether the counters of a key under several rules may be in different shards.
func (s *Store) scattered() bool { return s.byRule>>(64-shardBits) != 0 }

// fetch prefetches the memory of a key's counters, unless it is likely to be at hand; see view.
func (s *Store) fetch(rule *headgate.Rule, hash uint64) {
	v := s.views[hash>>(64-shardBits)].Load()
	if len(v.entries) <= fewEntries {
		return
	}
	limits := rule.Limits()
	for i := range limits {
		v.prefetch(counterOf(hash, slotOf(&limits[i])))
	}
}

func (s *Store) shardOf(hash uint64) *shard { return &s.shards[hash>>(64-shardBits)] }

// logSlot is the slot of a rule's log. Other counters have Limit.Slot.
const logSlot = 1

// slotOf returns the name of a limit's counter among those of its key. All sliding windows of a
// rule have one counter, the log.
func slotOf(l *headgate.Limit) uint64 {
	if l.Algorithm == headgate.SlidingWindow {
		return logSlot
	}
	return l.Slot()
}

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
	return s.wallAt(now).shown(now).Time()
}
