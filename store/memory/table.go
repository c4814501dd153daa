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

// entry is one counter. It is in one of three forms, which its shard's lock guards:
//
//   - as a Word: word is an [algorithm.Word], extra and until are its high, and kind and used are the two halves of
//     its [algorithm.Kind]. Unless the bit held is set in word, callers without the lock change the
//     Word by compare-and-swap; see [Store.TakeSingle].
//   - as a state: stamp, used and extra are those of an [algorithm.State] as it is kept in slots.
//   - as a log: stamp is logMark and the log's index in shard.logs.
//
// Callers without the lock use no more than hash and kind before they have seen a Word that is not
// held.
type entry struct {
	hash  uint64 // 0 in an empty place; written once, atomically
	word  uint64 // atomic if kind is not 0
	used  uint32 // written atomically, as are extra and until
	extra uint32
	kind  uint32 // upper half of the kind of the Words that this place may hold, or 0; written once, atomically
	until uint32 // isWord or more, see there; else when the counter is fully free, see until
}

const (
	entryBytes = 32
	// held is the bit of word that says that the entry is used under the lock only.
	held = 1 << 63
	// isWord or more in the field until says that the entry is kept as a Word. What is more are the bits
	// of its high that extra has no room for.
	isWord = math.MaxUint32 - 7
)

// asWord reports whether the entry is kept as a Word.
func (e *entry) asWord() bool { return e.until >= isWord }

// hold returns the entry's Word, which only the caller may change from now on. It reports whether
// others were free to change it until now.
func (e *entry) hold() (w algorithm.Word, wasOpen bool) {
	for {
		w := atomic.LoadUint64(&e.word)
		if w&held != 0 || atomic.CompareAndSwapUint64(&e.word, w, w|held) {
			return algorithm.Word(w &^ held), w&held == 0
		}
	}
}

// read returns the word and its high, for callers without the lock.
func (e *entry) read() (w, high uint64) {
	w = atomic.LoadUint64(&e.word)
	return w, uint64(atomic.LoadUint32(&e.until)&^isWord)<<32 | uint64(atomic.LoadUint32(&e.extra))
}

// high returns the high of an entry that is kept as a Word.
func (e *entry) high() uint64 { return uint64(e.until&^isWord)<<32 | uint64(e.extra) }

// shut makes sure that nobody without the lock changes the counter, and reports whether that was
// possible until now.
func (e *entry) shut() (wasOpen bool) {
	if e.asWord() {
		_, wasOpen = e.hold()
	}
	return wasOpen
}

// is reports whether an entry whose kind has the same upper half, and whose word is not held, has the
// given kind, for callers without the lock.
func (e *entry) is(kind algorithm.Kind) bool {
	return !kind.IsLarge() || atomic.LoadUint32(&e.used) == uint32(kind)
}

// upper returns the half of a kind that an entry keeps once and for all.
func upper(kind algorithm.Kind) uint32 { return uint32(kind >> 32) }

// setWord keeps the counter as a Word, if no Words of another kind were ever in this place. Such a
// Word could be the same number, and a caller who has read it would take the one for the other. If
// open is true, callers without the lock may change the Word from now on.
func (e *entry) setWord(w algorithm.Word, high uint64, kind algorithm.Kind, open bool) bool {
	if e.kind != 0 && e.kind != upper(kind) {
		return false
	}
	e.setRest(uint32(kind), uint32(high), isWord|uint32(high>>32))
	e.replaceWord(w, open)
	if e.kind == 0 {
		atomic.StoreUint32(&e.kind, upper(kind))
	}
	return true
}

// setRest sets what is beside the word.
func (e *entry) setRest(used, extra, until uint32) {
	if e.used != used {
		atomic.StoreUint32(&e.used, used)
	}
	if e.extra != extra {
		atomic.StoreUint32(&e.extra, extra)
	}
	e.setUntil(until)
}

func (e *entry) setUntil(until uint32) {
	if e.until != until {
		atomic.StoreUint32(&e.until, until)
	}
}

// replaceWord is setWord for an entry that is kept as a Word of that kind, and whose high stays.
func (e *entry) replaceWord(w algorithm.Word, open bool) {
	word := uint64(w)
	if !open {
		word |= held
	}
	atomic.StoreUint64(&e.word, word)
}

// wordKind returns the kind of the Word that the entry is kept as.
func (e *entry) wordKind() algorithm.Kind {
	return algorithm.Kind(e.kind)<<32 | algorithm.Kind(e.used)
}

// stamp returns the stamp of an entry that is not kept as a Word.
func (e *entry) stamp() int64 { return int64(atomic.LoadUint64(&e.word)<<1) >> 1 }

// state returns the state of an entry that is kept as one.
func (e *entry) state() algorithm.State {
	return algorithm.State{Stamp: headgate.Instant(e.stamp()), Used: int64(e.used), Extra: int64(e.extra)}
}

// set keeps the counter as a state.
func (e *entry) set(s algorithm.State, until uint32) {
	e.setStamp(int64(s.Stamp))
	e.setRest(uint32(s.Used), uint32(s.Extra), until)
}

func (e *entry) setStamp(stamp int64) { atomic.StoreUint64(&e.word, held|uint64(stamp)) }

// grace is how long a counter is kept after it has become fully free, in µs. If the clock steps
// back by no more than that, the counter is still there.
const grace = 60 * 1_000_000

// untilUnit is the unit, in µs, in which an entry says when its counter is fully free. 32 bits are
// enough for 272 years before and after 1970.
const untilUnit = 4 * 1_000_000

// until returns a time in the form in which an entry keeps it, rounded up. 0 would mean that the
// counter is free now.
func until(expires headgate.Instant) uint32 {
	units := int64(expires)/untilUnit + 1 + 1<<31
	return uint32(max(1, min(units, isWord-1)))
}

// table is a hash table with linear probing. A hash begins at the place hash × size / 2^64, so a
// table can have any size and need not double. Entries are never removed one by one; rebuild drops
// those that are fully free.
type table struct {
	entries []entry
	filled  int
	origin  headgate.Instant // what the Words of all entries count from
	ahead   algorithm.Micros // how far the wall clock is ahead, for windows that follow it
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
func (t *table) room(n int) bool {
	return (t.filled+n)*8 <= len(t.entries)*maxLoad
}

// busy reports whether the entry must be kept.
func (t *table) busy(e *entry, now headgate.Instant) bool {
	switch now -= grace; {
	case e.hash == 0:
		return false
	case e.asWord():
		kind := e.wordKind()
		if kind.OnWall() {
			now += headgate.Instant(t.ahead)
		}
		return algorithm.Word(atomic.LoadUint64(&e.word)&^held).FreeAt(kind, e.high(), t.origin) > now
	}
	return e.until != 0 && headgate.Instant((int64(e.until)-1<<31)*untilUnit) > now
}

// rebuild moves the entries that are in use at now to a table of the given size, with room for n
// more, whose Words count from now. The old entries are all held from then on, so that a caller
// without the lock changes none of them. Until then such callers may use entries that were idle
// when the size was chosen. If the table has no room for these, it becomes larger.
func (t *table) rebuild(now headgate.Instant, size, n int) {
	old, from := t.entries, t.origin
	t.entries, t.filled = make([]entry, size), 0
	for i := range old {
		moved := entry{hash: old[i].hash, used: old[i].used, extra: old[i].extra, kind: old[i].kind, until: old[i].until}
		if moved.kind == 0 {
			moved.word = old[i].word
		} else {
			moved.word = atomic.SwapUint64(&old[i].word, held)
		}
		if !t.busy(&moved, now) {
			continue
		}
		if moved.asWord() {
			w, high := algorithm.Word(moved.word&^held).Rebase(moved.wordKind(), moved.high(), from, now)
			moved.word, moved.extra, moved.until = moved.word&held|uint64(w), uint32(high), isWord|uint32(high>>32)
		} else {
			moved.kind = 0 // no caller has read a Word in the new place
		}
		for !t.room(n + 1) {
			t.grow()
		}
		*t.find(moved.hash) = moved
		t.filled++
	}
	t.origin = now
}

// grow moves the entries of a table that nobody else sees yet to a larger one.
func (t *table) grow() {
	old := t.entries
	t.entries = make([]entry, len(old)*5/4+1)
	for i := range old {
		if old[i].hash != 0 {
			*t.find(old[i].hash) = old[i]
		}
	}
}

// live counts the entries that are in use at now.
func (t *table) live(now headgate.Instant) int {
	n := 0
	for i := range t.entries {
		if t.busy(&t.entries[i], now) {
			n++
		}
	}
	return n
}

// view is what callers who have not locked a shard see of it. A shard with another table has a new
// one.
type view struct {
	entries []entry
	origin  headgate.Instant
	sweepAt atomic.Int64 // see shard
}

// prefetch asks for the memory in which the search for hash begins. With many keys, a decision
// mostly waits for the memory of its counter, which is in no cache. So a caller prefetches that
// memory as soon as the hash is known, and it arrives while the clock is read.
func (v *view) prefetch(hash uint64) {
	prefetch.At(uintptr(unsafe.Pointer(&v.entries[home(hash, uint64(len(v.entries)))])))
}

// find returns the entry of hash if it may hold a Word whose kind has the given upper half, or nil.
func (v *view) find(hash uint64, kind uint32) *entry {
	i := home(hash, uint64(len(v.entries)))
	for {
		e := &v.entries[i]
		switch atomic.LoadUint64(&e.hash) {
		case hash:
			if atomic.LoadUint32(&e.kind) == kind {
				return e
			}
			return nil
		case 0:
			return nil
		}
		if i++; i == uint64(len(v.entries)) {
			i = 0
		}
	}
}

// shard is a part of the store's keys. mu guards all fields; a request for one key locks one shard,
// once. The fields that every decision reads come first, and the padding keeps shards on separate
// cache lines.
type shard struct {
	mu      sync.Mutex
	last    headgate.Instant // the latest time, by the store's own clock
	wall    *wall
	sweepAt headgate.Instant // when to look for idle counters again
	table   table
	view    *atomic.Pointer[view] // the one place that is read without mu
	full    bool                  // new keys share counters
	sharing bool                  // full, or there are commons

	logs     []*algorithm.Log // the stamp of a log's entry is its index here
	freeLogs []int64          // free indices of logs
	stuck    int              // counters since the last rebuild that could not be kept as Words
	budget   *budget
	commons  map[uint64]struct{} // the hashes of shared counters that are in use
	shared   uint64              // see Stats.Shared
	merged   uint64              // see Stats.Merged
	words    bool                // counters may be Words; see Store.steady
	_        [7]byte
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
	// renewAfter is the age at which a sweep renews the origin of a table's Words, in µs.
	renewAfter = algorithm.MaxAge / 2
)

// reserve makes sure that n entries can be inserted.
func (sh *shard) reserve(n int, now headgate.Instant) {
	if now < sh.sweepAt && sh.table.room(n) {
		return
	}
	sh.makeRoom(n, now)
}

// makeRoom drops idle counters and resizes the table for the entries in use.
func (sh *shard) makeRoom(n int, now headgate.Instant) {
	sh.table.ahead = sh.wall.ahead
	sh.dropIdleLogs(now)
	size := len(sh.table.entries)
	small, old := size <= smallSize, sh.words && algorithm.Micros(now-sh.table.origin) > renewAfter
	if small && !old && !sh.sharing && sh.stuck == 0 && sh.table.room(n) {
		sh.sweepAt = now + sweepEvery
		sh.view.Load().sweepAt.Store(int64(sh.sweepAt))
		return
	}
	live := sh.table.live(now)
	share := (sh.budget.max - sh.budget.logs.Load()) / shards // of the memory that logs leave
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
	gains := live <= sh.table.filled*3/4 && !small || sh.stuck > live/8
	if size != len(sh.table.entries) || !sh.table.room(n) || gains || old {
		sh.resize(size, n, now)
	}
	for hash := range sh.commons {
		if !sh.table.busy(sh.table.find(hash), now) {
			delete(sh.commons, hash)
		}
	}
	sh.sharing = sh.full || len(sh.commons) > 0
	sh.show()
}

// resize makes a new table with the entries in use and with room for n more; see rebuild. The caller
// shows it.
func (sh *shard) resize(size, n int, now headgate.Instant) {
	before := len(sh.table.entries)
	sh.table.rebuild(now, size, n)
	sh.budget.tables.Add(int64(len(sh.table.entries)-before) * entryBytes)
	sh.stuck = 0
}

// show publishes the shard's table and the time of its next sweep.
func (sh *shard) show() {
	v := &view{entries: sh.table.entries, origin: sh.table.origin}
	v.sweepAt.Store(int64(sh.sweepAt))
	sh.view.Store(v)
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
		atomic.StoreUint64(&e.hash, hash)
		sh.table.filled++
	}
	return e
}

func (sh *shard) addTo(all *Stats) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	all.Counters += sh.table.filled
	all.Logs += len(sh.logs) - len(sh.freeLogs)
	all.Shared += sh.shared
	all.Merged += sh.merged
}
