package memory

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// entry is one counter. It is in one of two forms:
//
//   - A held entry is used under the lock of its shard only. It has the fields of an
//     [algorithm.State]; for the log of a rule's sliding windows, stamp is the log's index in
//     shard.logs instead.
//   - An open entry is the bucket of a limit that nobody but lists of the same count has used. Its
//     word is an [algorithm.Word], and is changed by compare-and-swap without the lock; see
//     [Store.TakeSingle].
//
// A caller with the lock makes an open entry a held one before it reads or changes its state.
// Callers without the lock use hash, count and word only.
type entry struct {
	hash  uint64 // 0 in an empty place; written once, atomically
	word  uint64 // of a held entry: held + stamp; atomic if count is not 0
	used  uint32
	extra uint32
	count uint32 // of the list whose Words the entry may hold, or 0; written once, atomically
	until uint32 // of a held entry: when the counter is fully free, see until; else the rate's num
}

const (
	entryBytes = 32
	// held is the bit of word that says that the entry is held.
	held = 1 << 63
)

// isHeld reports whether the entry is held. The shard is locked.
func (e *entry) isHeld() bool { return e.count == 0 || atomic.LoadUint64(&e.word)&held != 0 }

// stamp returns the stamp of a held entry.
func (e *entry) stamp() int64 { return int64(atomic.LoadUint64(&e.word)<<1) >> 1 }

// state returns the state of a held entry.
func (e *entry) state() algorithm.State {
	return algorithm.State{Stamp: headgate.Instant(e.stamp()), Used: e.used, Extra: e.extra}
}

// set makes the entry a held one with the given state, whatever it was.
func (e *entry) set(s algorithm.State, until uint32) {
	e.setStamp(int64(s.Stamp))
	e.used, e.extra, e.until = s.Used, s.Extra, until
}

func (e *entry) setStamp(stamp int64) {
	if w := held | uint64(stamp); e.count == 0 {
		e.word = w
	} else {
		atomic.StoreUint64(&e.word, w)
	}
}

// open makes a held entry an open one, if no Words of another count were ever in this place. Such a
// Word could be the same number, and a caller who has read it would take the one for the other.
func (e *entry) open(w algorithm.Word, count, num int64) bool {
	if e.count != 0 && e.count != uint32(count) {
		return false
	}
	e.until = uint32(num)
	atomic.StoreUint64(&e.word, uint64(w))
	if e.count == 0 {
		atomic.StoreUint32(&e.count, uint32(count))
	}
	return true
}

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
	return uint32(max(1, min(units, math.MaxUint32)))
}

// past reports whether u, a time that until has returned, lies before now.
func past(u uint32, now headgate.Instant) bool {
	return u != math.MaxUint32 && headgate.Instant((int64(u)-1<<31)*untilUnit) <= now
}

// table is a hash table with linear probing. A hash begins at the place hash × size / 2^64, so a
// table can have any size and need not double. Entries are never removed one by one; rebuild drops
// those that are fully free.
type table struct {
	entries []entry
	filled  int
	origin  headgate.Instant // the zero of the Words of all entries
}

// maxLoad is the share of places that may be filled, in eighths.
const maxLoad = 7

// home returns the place at which the probing for hash begins in a table of the given size.
func home(hash, size uint64) uint64 {
	i, _ := bits.Mul64(hash, size)
	return i
}

// find returns the place of hash, or the empty place where it belongs. The table
// must have an empty place. The shard is locked.
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
	switch {
	case e.hash == 0:
		return false
	case e.isHeld():
		return e.until != 0 && !past(e.until, now-grace)
	}
	return t.origin+headgate.Instant(algorithm.Word(atomic.LoadUint64(&e.word)).FreeAt(int64(e.until))) > now-grace
}

// rebuild moves the entries that are in use at now to a table of the given size, with room for n
// more. The old entries are all held from then on, so that a caller without the lock changes none
// of them. Until then such callers may use entries that were idle when the size was chosen. If the
// table has no room for these, it becomes larger.
func (t *table) rebuild(now headgate.Instant, size, n int) {
	old := t.entries
	t.entries, t.filled = make([]entry, size), 0
	for i := range old {
		e := &old[i]
		moved := entry{hash: e.hash, used: e.used, extra: e.extra, until: e.until, count: e.count}
		if e.count == 0 {
			moved.word = e.word
		} else if moved.word = atomic.SwapUint64(&e.word, held); moved.word&held != 0 {
			moved.count = 0
		}
		if t.busy(&moved, now) {
			for !t.room(n + 1) {
				t.grow()
			}
			*t.find(moved.hash) = moved
			t.filled++
		}
	}
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
