package memory

import (
	"math/bits"

	"github.com/headgate/headgate/algorithm"
)

// entry is one counter. It has the fields of an [algorithm.State]. For the log of a rule's sliding
// windows, stamp is the log's index in shard.logs instead.
type entry struct {
	hash    uint64 // 0 in an empty place
	stamp   int64
	expires int64 // when the counter is fully free, in µs; 0 if it is free now
	used    uint32
	extra   uint32
}

const entryBytes = 32

func (e *entry) state() algorithm.State {
	return algorithm.State{Stamp: e.stamp, Used: e.used, Extra: e.extra}
}

// grace is how long a counter is kept after it has become fully free, in µs. If the clock steps
// back by no more than that, the counter is still there.
const grace = 60 * 1_000_000

// busy reports whether the entry must be kept.
func (e *entry) busy(now int64) bool { return e.hash != 0 && e.expires > now-grace }

func (e *entry) set(s algorithm.State, expires int64) {
	e.stamp, e.used, e.extra, e.expires = s.Stamp, s.Used, s.Extra, expires
}

// table is a hash table with linear probing. A hash begins at the place hash × size / 2^64, so a
// table can have any size and need not double. Entries are never removed one by one; rebuild drops
// the free ones.
type table struct {
	entries []entry
	filled  int
}

// maxLoad is the share of places that may be filled, in eighths.
const maxLoad = 7

// home returns the place at which the probing for hash begins in a table of the given size.
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

// rebuild moves the entries that are not free at now to a table of the given size.
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
