package memory

import (
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// budget is the memory of all shards together, in bytes. The sizes of logs differ as much as their
// limits do, so shards have no fixed shares of the memory for logs.
type budget struct {
	max    int64
	tables atomic.Int64
	logs   atomic.Int64
	shards []shard       // all shards, so that one can reclaim memory from another
	next   atomic.Uint32 // the shard to reclaim from next
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
		sh.last = max(sh.last, now)
		sh.makeRoom(0, now)
	}
}

// When memory is full, new keys share counters. A shared counter is found under a hash of the rule
// and the number of the shared counter, in place of the hash of the key. It is never kept as a Word.

const (
	// sharedCounters is how many counters a rule's new keys share in each shard when memory is
	// full. spare is the number of entries that are kept free for such counters.
	sharedCounters = 4
	spare          = 16
)

// place returns the hash under which a key's counter is found. If memory is full and the key has no
// counter yet, that is the hash of a shared one.
func (sh *shard) place(rule *headgate.Rule, hash, slot uint64, now headgate.Instant) (place uint64, shared bool) {
	own := counterOf(hash, slot)
	if !sh.sharing && slot != logSlot {
		return own, false
	}
	full := sh.full
	if slot == logSlot && sh.budget.room() < newLog {
		if sh.table.find(own).hash != 0 {
			return own, false
		}
		sh.budget.reclaim(now)
		full = full || sh.budget.room() < newLog
	}
	if !full && !sh.sharing || sh.table.find(own).hash != 0 {
		return own, false
	}
	common := mix(mix(rule.ID(), hash>>1%sharedCounters+2), slot)
	if full || !sh.inherit(own, common, now) {
		sh.shared++
		return common, true
	}
	return own, false
}

// inherit gives a key a counter of its own once memory is free again. The new counter begins with
// the units in use in the shared counter, because this key may have used them. inherit returns
// false if there is not enough memory after all.
func (sh *shard) inherit(own, common uint64, now headgate.Instant) bool {
	from := sh.table.find(common)
	if _, known := sh.commons[common]; !known || !sh.table.busy(from, now) {
		return true
	}
	g := sh.log(from)
	if g != nil && sh.budget.room() < int64(g.Bytes()+logBytes) {
		return false
	}
	several := algorithm.HasFurther(from.state())
	if several && !sh.table.room(spare+algorithm.BucketSlots) {
		return false
	}
	to := sh.insert(sh.table.find(own), own)
	if g != nil {
		sh.setLog(to, g.Clone())
		to.setUntil(from.until)
	} else {
		to.set(from.state(), from.until)
	}
	for i := 1; several && i < algorithm.BucketSlots; i++ {
		sh.putState(furtherSlot(own, i), sh.table.find(furtherSlot(common, i)).state(), from.until)
	}
	return true
}

// share records that a shared counter is in use.
func (sh *shard) share(hash uint64) {
	if sh.commons == nil {
		sh.commons = make(map[uint64]struct{})
	}
	sh.commons[hash], sh.sharing = struct{}{}, true
}
