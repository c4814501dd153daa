package memory

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// When memory is full, new keys share counters. A shared counter is found under a hash of the rule
// and the number of the shared counter, in place of the hash of the key.

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
	if !sh.sharing || sh.table.find(own).hash != 0 {
		return own, false
	}
	return sh.placeNew(rule, hash, slot, own, sh.full, now)
}

// placeLog is place for the log of a rule's sliding windows.
func (sh *shard) placeLog(rule *headgate.Rule, hash uint64, now headgate.Instant) (place uint64, shared bool) {
	own := counterOf(hash, logSlot)
	if sh.table.find(own).hash != 0 {
		return own, false
	}
	full := sh.full
	if sh.budget.room() < newLog {
		sh.budget.reclaim(now)
		full = full || sh.budget.room() < newLog
	}
	if !full && !sh.sharing {
		return own, false
	}
	return sh.placeNew(rule, hash, logSlot, own, full, now)
}

// placeNew chooses between a shared counter and a new one for a key that has none yet.
func (sh *shard) placeNew(rule *headgate.Rule, hash, slot, own uint64, full bool, now headgate.Instant) (place uint64, shared bool) {
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
	several := algorithm.HasSlots(from.state())
	if several && !sh.table.room(spare+algorithm.BucketSlots) {
		return false
	}
	to := sh.table.find(own)
	sh.insert(to, own)
	if g != nil {
		sh.setLog(to, g.Clone())
		to.until = from.until
	} else {
		to.set(from.state(), from.until)
	}
	for i := 1; several && i < algorithm.BucketSlots; i++ {
		sh.putState(furtherSlot(own, i), sh.table.find(furtherSlot(common, i)).state(), from.until)
	}
	return true
}

// charging prepares to charge a shared counter. It reads the counter again, because several keys of
// one request may share it.
func (sh *shard) charging(st *step, now headgate.Instant) {
	sh.share(st.hash)
	if st.limit.Algorithm != headgate.SlidingWindow {
		sh.load(st, 0, now)
	}
}

// share records that a shared counter is in use.
func (sh *shard) share(hash uint64) {
	if sh.commons == nil {
		sh.commons = make(map[uint64]struct{})
	}
	sh.commons[hash], sh.sharing = struct{}{}, true
}
