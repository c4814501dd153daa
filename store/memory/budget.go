package memory

import (
	"sync/atomic"

	"github.com/headgate/headgate"
)

// budget is the memory of all shards together, in bytes. The sizes of logs differ as much as their
// limits do, so shards have no fixed shares of the memory for logs.
type budget struct {
	max    int64
	tables atomic.Int64
	logs   atomic.Int64
	shards []shard       // all shards, so that one can reclaim memory from another
	next   atomic.Uint32 // the shard to reclaim from next
	steady bool          // the clock never steps back, so entries may be open
}

// room returns how much is left. It is negative if a little too much is in use.
func (b *budget) room() int64 { return b.max - b.tables.Load() - b.logs.Load() }

// reclaim drops the idle counters of one shard, unless that shard is locked.
func (b *budget) reclaim(now headgate.Instant) {
	sh := &b.shards[b.next.Add(1)%shards]
	if !sh.mu.TryLock() {
		return
	}
	defer sh.mu.Unlock()
	if now >= sh.sweepAt {
		sh.makeRoom(0, now)
	}
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

// reserve makes sure that n entries can be inserted.
func (sh *shard) reserve(n int, now headgate.Instant) {
	if now < sh.sweepAt && sh.table.room(n) {
		return
	}
	sh.makeRoom(n, now)
}

// makeRoom drops idle counters and resizes the table for the entries in use.
func (sh *shard) makeRoom(n int, now headgate.Instant) {
	sh.dropIdleLogs(now)
	size := len(sh.table.entries)
	small := size <= smallSize
	if small && !sh.sharing && sh.stuck == 0 && sh.table.room(n) {
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
	if size != len(sh.table.entries) || !sh.table.room(n) || live <= sh.table.filled*3/4 && !small || sh.stuck > live/8 { // otherwise a rebuild gains too little
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
	v := &view{entries: sh.table.entries}
	v.sweepAt.Store(int64(sh.sweepAt))
	sh.view.Store(v)
}
