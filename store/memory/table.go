package memory

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/prefetch"
)

// entry is one counter: an [algorithm.State], or the place of a [large] one.
type entry struct {
	hash        uint64 // 0 in an empty place
	stamp       int64  // of the State, or the index of the large counter in shard.large
	used, extra uint32 // of the State
	count       uint32 // the limit's count, by which the State of a bucket drains, or isLarge
	until       uint32 // when the counter is fully free; see until
}

const (
	entryBytes = 32
	// isLarge, in the field count, says that the counter is a large one.
	isLarge = math.MaxUint32
)

func (e *entry) large() bool { return e.count == isLarge }

// state returns the state of a counter that is not large.
func (e *entry) state() algorithm.State {
	return algorithm.State{Stamp: headgate.Instant(e.stamp), Used: e.used, Extra: e.extra}
}

// set keeps a state.
func (e *entry) set(s algorithm.State, count int64, until uint32) {
	e.stamp, e.used, e.extra, e.count, e.until = int64(s.Stamp), s.Used, s.Extra, uint32(count), until
}

// read is for a state that was advanced to now and not charged. It is stored only if the clock has
// stepped back. The counter is kept until the given time at least, because its limit may have been
// lowered since it was charged.
func (e *entry) read(advanced algorithm.State, now headgate.Instant, until uint32) {
	if algorithm.Moved(e.state(), advanced, now) {
		e.stamp, e.used, e.extra = int64(advanced.Stamp), advanced.Used, advanced.Extra
	}
	if e.until != 0 {
		e.until = max(e.until, until)
	}
}

// grace is how long a counter is kept after it has become fully free, in µs. If the clock steps
// back by no more than that, the counter is still there.
const grace = 60 * 1_000_000

// untilUnit is the unit in which an entry says when its counter is fully free: 2^22 µs, some four
// seconds. 32 bits are enough for 285 years before and after 1970.
const untilUnit = 1 << 22

// until returns a time in the form in which an entry keeps it, rounded up. 0 would mean that the
// counter is free now.
func until(expires headgate.Instant) uint32 {
	units := int64(expires)/untilUnit + 1 + 1<<31
	return uint32(max(1, min(units, math.MaxUint32)))
}

// table is a hash table with linear probing. A hash begins at the place hash × size / 2^64, so a
// table can have any size and need not double. Entries are never removed one by one; rebuild drops
// those that are fully free.
type table struct {
	entries []entry
	filled  int32
	most    int32 // how many places may be filled
}

// maxLoad is the share of places that may be filled, in eighths.
const maxLoad = 7

// home returns the place at which the probing for hash begins in a table of the given size.
func home(hash, size uint64) uint64 {
	i, _ := bits.Mul64(hash, size)
	return i
}

// find returns the place of hash, or the empty place where it belongs. The table must have an empty
// place. The shard is locked.
func (t *table) find(hash uint64) *entry {
	i := home(hash, uint64(len(t.entries)))
	for {
		e := &t.entries[i]
		if e.hash == hash || e.hash == 0 {
			return e
		}
		if i++; i == uint64(len(t.entries)) {
			i = 0
		}
	}
}

// room reports whether n more entries can be inserted.
func (t *table) room(n int) bool { return int(t.filled)+n <= int(t.most) }

// busy reports whether the entry must be kept.
func (e *entry) busy(now headgate.Instant) bool {
	return e.until != 0 && headgate.Instant((int64(e.until)-1<<31)*untilUnit) > now-grace
}

// rebuild moves the entries that are in use at now to a table of the given size.
func (t *table) rebuild(now headgate.Instant, size int) {
	old := t.entries
	t.entries, t.filled, t.most = make([]entry, size), 0, int32(size*maxLoad/8)
	for i := range old {
		if e := &old[i]; e.busy(now) {
			*t.find(e.hash) = *e
			t.filled++
		}
	}
}

// live counts the entries that are in use at now.
func (t *table) live(now headgate.Instant) int {
	n := 0
	for i := range t.entries {
		if t.entries[i].busy(now) {
			n++
		}
	}
	return n
}

// fewEntries is the size of a table that is likely to be in the processor's cache.
const fewEntries = 64

// prefetch asks for the memory in which the search for a counter begins, given the hash of its key
// and its own. With many keys, a decision mostly waits for that memory, which is in no cache. It
// arrives while the clock is read and the shard is locked.
func (s *Store) prefetch(hash, counter uint64) {
	if entries := *s.tables[hash>>(64-shardBits)].Load(); len(entries) > fewEntries {
		prefetch.At(uintptr(unsafe.Pointer(&entries[home(counter, uint64(len(entries)))])))
	}
}

// shard is a part of the store's keys. mu guards all fields; a request for one key locks one shard,
// once. The fields that every decision uses come first, and the padding keeps shards on separate
// cache lines.
type shard struct {
	mu      sync.Mutex
	sharing bool             // full, or there are commons
	full    bool             // new keys share counters
	last    headgate.Instant // the latest time, by the store's own clock
	dueAt   headgate.Instant // when to attend to the wall clock or to idle counters again
	table   table
	wall    *wall            // at the latest decision that needs it here
	sweepAt headgate.Instant // when to look for idle counters again
	clock   *clock           // nil if the store was given a clock

	large     []large // the stamp of a large counter's entry is its index here
	freeLarge []int64 // free indices of large
	budget    *budget
	commons   map[uint64]struct{}      // the hashes of shared counters that are in use
	shared    uint64                   // see Stats.Shared
	merged    uint64                   // see Stats.Merged
	shown     *atomic.Pointer[[]entry] // the entries, for prefetch
	_         [16]byte
}

const (
	// minSize is the number of places in the smallest table.
	minSize = 16
	// smallSize is the number of places up to which a table with room for more is left as it is.
	// Rebuilding it takes longer than its idle counters are worth.
	smallSize = 2 * spare
	// sweepEvery is the time between two sweeps for idle counters, in µs.
	sweepEvery = 60 * 1_000_000
	// sweepFull is the time between two sweeps while memory is full, in µs.
	sweepFull = 1_000_000
)

// reserve makes sure that n entries can be inserted. Every operation calls it first, so it also does
// what has to be done now and then.
func (sh *shard) reserve(n int, now headgate.Instant) {
	if now >= sh.dueAt || !sh.table.room(n) {
		sh.attend(n, now)
	}
}

func (sh *shard) attend(n int, now headgate.Instant) {
	if sh.clock != nil {
		sh.clock.resync(now)
	}
	if now >= sh.sweepAt || !sh.table.room(n) {
		sh.makeRoom(n, now)
	}
	sh.dueAt = min(sh.sweepAt, now+resyncEvery)
}

// makeRoom drops idle counters and resizes the table for the entries in use.
func (sh *shard) makeRoom(n int, now headgate.Instant) {
	sh.dropIdleLarge(now)
	size := len(sh.table.entries)
	small := size <= smallSize
	if small && !sh.sharing && sh.table.room(n) {
		sh.sweepAt = now + sweepEvery
		return
	}
	live := sh.table.live(now)
	share := (sh.budget.max - sh.budget.large.Load()) / shards // of the memory that large counters leave
	most := max(minSize+spare, int(share)/entryBytes)
	sh.full = (live+n+spare)*8 > most*maxLoad
	sh.sweepAt = now + sweepEvery
	need := (live+n)*8/maxLoad + 1
	switch {
	case sh.full:
		sh.sweepAt = now + sweepFull
		size = max(size, need+spare)
	case need > size*7/8 || need < size/4 && !small:
		size = min(max(minSize, need*5/4+spare), most)
	}
	if size != len(sh.table.entries) || !sh.table.room(n) || live <= int(sh.table.filled)*3/4 && !small {
		sh.resize(size, now)
	}
	for hash := range sh.commons {
		if !sh.table.find(hash).busy(now) {
			delete(sh.commons, hash)
		}
	}
	sh.sharing = sh.full || len(sh.commons) > 0
}

// resize makes a new table with the entries in use.
func (sh *shard) resize(size int, now headgate.Instant) {
	before := len(sh.table.entries)
	sh.table.rebuild(now, size)
	sh.budget.tables.Add(int64(len(sh.table.entries)-before) * entryBytes)
	entries := sh.table.entries
	sh.shown.Store(&entries)
}

// insert turns the empty place of hash into an entry, unless it is one. The caller must have called
// reserve. It returns the entry, because another counter of the same request may have taken the
// place.
func (sh *shard) insert(e *entry, hash uint64) *entry {
	if e.hash == hash {
		return e
	}
	if e.hash != 0 {
		e = sh.table.find(hash)
	}
	if e.hash == 0 {
		e.hash = hash
		sh.table.filled++
	}
	return e
}

func (sh *shard) addTo(all *Stats) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	all.Counters += int(sh.table.filled)
	for i := range sh.large {
		if sh.large[i].log != nil {
			all.Logs++
		}
	}
	all.Shared += sh.shared
	all.Merged += sh.merged
}
