package memory

import (
	"math/bits"

	"github.com/headgate/headgate/algorithm"
)

// entry is one counter. The fields of an [algorithm.State] stand in it, or, for
// the log of a rule's sliding windows, its place in the shard's logs in stamp.
type entry struct {
	hash    uint64 // 0 is an empty place
	stamp   int64
	expires int64 // when the counter is fully free, in µs; 0 is free now
	used    uint32
	extra   uint32
}

const entryBytes = 32

func (e *entry) state() algorithm.State {
	return algorithm.State{Stamp: e.stamp, Used: e.used, Extra: e.extra}
}

// grace is how long a counter is kept after it was fully free, in µs, so that a
// clock that steps back by no more finds it again.
const grace = 60 * 1_000_000

// busy reports whether the entry must be kept.
func (e *entry) busy(now int64) bool { return e.hash != 0 && e.expires > now-grace }

func (e *entry) set(s algorithm.State, expires int64) {
	e.stamp, e.used, e.extra, e.expires = s.Stamp, s.Used, s.Extra, expires
}

// table is a hash table with linear probing. Places are taken by the high bits
// of hash × size, so that any size will do and a table need not double. Entries
// are never removed one by one: rebuild leaves the free ones out.
type table struct {
	entries []entry
	filled  int
}

// maxLoad is the share of places that may be filled, in eighths.
const maxLoad = 7

// home is where the probing for hash begins in a table of so many places.
func home(hash, size uint64) uint64 {
	i, _ := bits.Mul64(hash, size)
	return i
}

// find returns the place of hash, or the empty place where it belongs. The table
// must have an empty place.
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

// rebuild moves what is not free at now to a table of the given size.
func (t *table) rebuild(now int64, size int) {
	old := t.entries
	t.entries, t.filled = make([]entry, size), 0
	for i := range old {
		if e := &old[i]; e.busy(now) {
			*t.find(e.hash) = *e
			t.filled++
		}
	}
}

// live counts the entries that are not free at now.
func (t *table) live(now int64) int {
	n := 0
	for i := range t.entries {
		if e := &t.entries[i]; e.busy(now) {
			n++
		}
	}
	return n
}
