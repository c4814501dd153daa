package memory

import (
	"math"
	"sync"
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
func (b *budget) reclaim(now int64) {
	sh := &b.shards[b.next.Add(1)%shards]
	if !sh.mu.TryLock() {
		return
	}
	defer sh.mu.Unlock()
	if now >= sh.sweepAt {
		sh.makeRoom(0, now)
	}
}

// shard is a part of the store's keys. mu guards all fields; a request for one key locks one shard,
// once. The fields that every decision reads come first, and the padding keeps shards on separate
// cache lines.
type shard struct {
	mu      sync.Mutex
	hint    hint  // the only field that is read without mu
	last    int64 // the latest time, by the store's own clock, in µs
	sweepAt int64 // when to look for idle counters again, in µs
	table   table
	full    bool // new keys share counters
	sharing bool // full, or there are commons

	logs     []*algorithm.Log // the stamp of a log's entry is its index here
	freeLogs []int64          // free indices of logs
	budget   *budget
	commons  map[uint64]struct{} // the hashes of shared counters that are in use
	shared   uint64              // see Stats.Shared
	merged   uint64              // see Stats.Merged
	_        [32]byte
}

const (
	minSize    = 16
	sweepEvery = 60 * 1_000_000
	// sweepFull is the time between two sweeps while memory is full.
	sweepFull = 1_000_000
	// sharedCounters is how many counters a rule's new keys share in each shard when memory is
	// full. spare is the number of entries that are kept free for such counters.
	sharedCounters = 4
	spare          = 16
	// logMark, in the field used, says that the entry's stamp is the index of a log. No counter
	// ever has that many units in use.
	logMark = math.MaxUint32
)

// reserve makes sure that n entries can be inserted.
func (sh *shard) reserve(n int, now int64) {
	if now < sh.sweepAt && sh.table.room(n) {
		return
	}
	sh.makeRoom(n, now)
}

// makeRoom drops idle counters and resizes the table for the entries in use.
func (sh *shard) makeRoom(n int, now int64) {
	sh.dropIdleLogs(now)
	live := sh.table.live(now)
	size := len(sh.table.entries)
	share := (sh.budget.max - sh.budget.logs.Load()) / shards // of the memory that logs leave
	most := max(minSize+spare, int(share)/entryBytes)
	sh.full = (live+n+spare)*8 > most*maxLoad
	sh.sweepAt = now + sweepEvery
	need := (live+n)*8/maxLoad + 1
	switch {
	case sh.full:
		sh.sweepAt = now + sweepFull
		size = max(size, need+spare)
	case need > size*7/8 || need < size/4:
		size = min(max(minSize, need*3/2), most)
	}
	if size != len(sh.table.entries) || !sh.table.room(n) || live <= sh.table.filled*3/4 { // otherwise a rebuild gains too little
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
func (sh *shard) resize(size int, now int64) {
	sh.budget.tables.Add(int64(size-len(sh.table.entries)) * entryBytes)
	sh.table.rebuild(now, size)
	sh.hint.follow(&sh.table)
}

// dropIdleLogs frees the logs of entries that the next rebuild drops.
func (sh *shard) dropIdleLogs(now int64) {
	if len(sh.logs) == len(sh.freeLogs) {
		return
	}
	for i := range sh.table.entries {
		if e := &sh.table.entries[i]; e.used == logMark && !e.busy(now) {
			sh.freeLog(e)
		}
	}
}

func (sh *shard) freeLog(e *entry) {
	sh.budget.logs.Add(-int64(sh.logs[e.stamp].Bytes() + logBytes))
	sh.logs[e.stamp] = nil
	sh.freeLogs = append(sh.freeLogs, e.stamp)
	e.set(algorithm.State{}, 0)
}

// log returns the log of an entry, or nil.
func (sh *shard) log(e *entry) *algorithm.Log {
	if e.used != logMark {
		return nil
	}
	return sh.logs[e.stamp]
}

// logBytes is the memory that a log takes in addition to its entries: the struct, its first span
// and its element of shard.logs.
const logBytes = 96

// newLog is the memory that must be free for a new log. With less, new keys share logs.
const newLog = logBytes + 16*algorithm.EntryBytes

// setLog gives a log to an entry without one.
func (sh *shard) setLog(e *entry, g *algorithm.Log) {
	sh.budget.logs.Add(int64(g.Bytes() + logBytes))
	if n := len(sh.freeLogs); n > 0 {
		e.stamp, sh.freeLogs = sh.freeLogs[n-1], sh.freeLogs[:n-1]
		sh.logs[e.stamp] = g
	} else {
		e.stamp = int64(len(sh.logs))
		sh.logs = append(sh.logs, g)
	}
	e.used = logMark
}

// place returns the hash under which a key's counter is found. If memory is full and the key has no
// counter yet, that is the hash of a shared one.
func (sh *shard) place(rule *headgate.Rule, hash, slot uint64, now int64) (place uint64, shared bool) {
	own := mix(hash, slot)
	if !sh.sharing || sh.table.find(own).hash != 0 {
		return own, false
	}
	return sh.placeNew(rule, hash, slot, own, sh.full, now)
}

// placeLog is place for the log of a rule's sliding windows.
func (sh *shard) placeLog(rule *headgate.Rule, hash uint64, now int64) (place uint64, shared bool) {
	own := mix(hash, logSlot)
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
func (sh *shard) placeNew(rule *headgate.Rule, hash, slot, own uint64, full bool, now int64) (place uint64, shared bool) {
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
func (sh *shard) inherit(own, common uint64, now int64) bool {
	from := sh.table.find(common)
	if _, known := sh.commons[common]; !known || !from.busy(now) {
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
		to.expires = from.expires
	} else {
		to.set(from.state(), from.expires)
	}
	for i := 1; several && i < algorithm.BucketSlots; i++ {
		sh.putState(furtherSlot(own, i), sh.table.find(furtherSlot(common, i)).state(), from.expires)
	}
	return true
}

// charging prepares to charge a shared counter. It reads the counter again, because several keys of
// one request may share it.
func (sh *shard) charging(st *step, now int64) {
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

// slotOf returns the name of a limit's counter among those of its key. All sliding windows of a
// rule have one counter, the log.
func slotOf(l *headgate.Limit) uint64 {
	if l.Algorithm == headgate.SlidingWindow {
		return logSlot
	}
	return l.Slot()
}

// insert turns the empty place of hash into an entry. The caller must have called reserve.
func (sh *shard) insert(e *entry, hash uint64) {
	if e.hash == 0 {
		e.hash = hash
		sh.table.filled++
	}
}

// put stores a counter until it is fully free. There must be room for its further states; load
// reserves it.
func (sh *shard) put(st *step, c algorithm.Counter, expires int64) {
	if s, single := c.Single(st.limit); single { // the usual case, and cheaper than copying six slots
		sh.putState(st.hash, s, expires)
		return
	}
	slots, n := c.Slots(st.limit)
	for i := range n {
		sh.putState(furtherSlot(st.hash, i), slots[i], expires)
	}
}

func (sh *shard) putState(hash uint64, s algorithm.State, expires int64) {
	e := sh.table.find(hash)
	if s.IsZero() && e.hash == 0 {
		return
	}
	sh.insert(e, hash)
	e.set(s, expires)
}

// furtherSlot returns the hash of state i of the bucket whose first state has the given hash.
func furtherSlot(hash uint64, i int) uint64 {
	if i == 0 {
		return hash
	}
	return mix(hash, uint64(i))
}

// load reads the counter of a step and brings it up to now. If the clock has stepped back, or if a
// list of limits asks that is faster than all before, load also stores the result. reserved is the
// number of entries that the request has reserved. load returns how many further entries the
// counter may need; only a bucket that lists of different rates share needs any.
func (sh *shard) load(st *step, reserved int, now int64) (further int) {
	e := sh.table.find(st.hash)
	if s, plain := algorithm.Plain(st.limit, e.state()); plain {
		st.state = algorithm.Counter{State: algorithm.Advance(st.limit, s, now)}
		if algorithm.Moved(s, st.state.State, now) {
			e.set(algorithm.Mark(st.limit, st.state.State), e.expires)
		}
		return 0
	}
	sh.reserve(reserved+algorithm.BucketSlots, now)
	c := algorithm.LoadCounter(st.limit, true, func(i int) algorithm.State { return sh.table.find(furtherSlot(st.hash, i)).state() })
	var moved bool
	if st.state, moved = c.Advance(st.limit, now); moved {
		expires := sh.table.find(st.hash).expires
		if b := st.state.Bucket; b != nil {
			expires = max(expires, now+b.Busy(now))
		}
		sh.put(st, st.state, expires)
	}
	return algorithm.BucketSlots
}

// keep postpones the expiry of a counter that was only read, because its limit may have been
// lowered since it was charged.
func (sh *shard) keep(e *entry, expires int64) {
	if e.expires != 0 {
		e.expires = max(e.expires, expires)
	}
}

// keepAll is keep for all entries of a counter.
func (sh *shard) keepAll(st *step, expires int64) {
	first := sh.table.find(st.hash)
	sh.keep(first, expires)
	for i := 1; algorithm.HasSlots(first.state()) && i < algorithm.BucketSlots; i++ {
		sh.keep(sh.table.find(furtherSlot(st.hash, i)), expires)
	}
}

// takeOne is take for the most common request: one check with one limit that is not a sliding
// window. own is the hash of the key's own counter, if it has one. If the counter is a bucket that
// lists of different rates share, takeOne does nothing and returns false.
func (sh *shard) takeOne(c *headgate.Check, l *headgate.Limit, hash, own uint64, now int64, d *headgate.Decision) bool {
	sh.reserve(1, now)
	e, shared := sh.table.find(own), false
	if e.hash == 0 && sh.sharing {
		own, shared = sh.placeNew(c.Rule, hash, l.Slot(), own, sh.full, now)
		e = sh.table.find(own)
	}
	cost := c.Units()
	stored, plain := algorithm.Plain(l, e.state())
	if !plain {
		return false
	}
	d.Rule, d.Shadow = c.Rule, c.Shadow
	before := algorithm.Advance(l, stored, now)
	after, fits := before, algorithm.Fits(l, before, now, cost)
	if fits {
		after = algorithm.Charge(l, before, now, cost)
	}
	algorithm.Describe(d, l, before, after, now, cost, fits)
	expires := now + d.ResetAfter.Microseconds()
	if fits {
		if shared {
			sh.share(own)
		}
		sh.insert(e, own)
		e.set(algorithm.Mark(l, after), expires)
		return true
	}
	if algorithm.Moved(stored, before, now) {
		e.set(algorithm.Mark(l, before), e.expires)
	}
	sh.keep(e, expires)
	return true
}

// lookAtState reads the counter of a limit that is not a sliding window into its step. It returns
// how many further entries the counter may need; see load.
func (sh *shard) lookAtState(st *step, c *headgate.Check, hash uint64, reserved int, now int64) int {
	st.hash, st.shared = sh.place(c.Rule, hash, st.limit.Slot(), now)
	further := sh.load(st, reserved, now)
	st.fits = st.state.Fits(st.limit, now, c.Units())
	return further
}

// lookAtLog is lookAtState for a sliding window.
func (sh *shard) lookAtLog(st *step, c *headgate.Check, hash uint64, now int64) {
	st.hash, st.shared = sh.placeLog(c.Rule, hash, now)
	e := sh.table.find(st.hash)
	sh.followClock(e, now)
	if g := sh.log(e); g != nil {
		st.facts = g.Facts(st.limit, now, c.Units())
	}
	st.fits = st.facts.Fits(st.limit, c.Units())
}

// stepState finishes the step of a limit that is not a sliding window. It charges, punishes or
// refunds the counter, and describes it in d.
func (sh *shard) stepState(st *step, op headgate.Op, charge, punish bool, c *headgate.Check, now int64, d *headgate.Decision) {
	after, fits := st.state, st.fits
	switch {
	case punish:
		after.State = algorithm.Punish(st.limit, after.State, now)
	case charge:
		after = after.Charge(st.limit, now, c.Units())
	case op == headgate.OpRefund:
		if !st.shared { // a key must not give back what other keys have used
			after = after.Refund(st.limit, now, c.Units(), int64(c.At), 0)
		}
		fits = true
	}
	after.Describe(d, st.limit, st.state, now, c.Units(), fits)
	if op == headgate.OpRefund {
		d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
	}
	expires := after.Expires(d)
	if charge || punish || op == headgate.OpRefund {
		sh.put(st, after, expires)
	} else {
		sh.keepAll(st, expires)
	}
}

// stepLog finishes the step of a sliding window, and describes the window in d. For the rule's
// first window it also charges or refunds the log.
func (sh *shard) stepLog(st *step, op headgate.Op, charge bool, c *headgate.Check, now int64, d *headgate.Decision) {
	e := sh.table.find(st.hash)
	switch {
	case charge:
		if st.first {
			sh.insert(e, st.hash)
			sh.addToLog(e, c, c.Units(), now)
		}
		st.facts.Describe(d, st.limit, now, c.Units(), true)
	case op == headgate.OpRefund:
		var facts algorithm.WindowFacts
		if g := sh.log(e); g != nil {
			if st.first && !st.shared {
				sh.refundLog(g, c.Units(), int64(c.At))
			}
			facts = g.Facts(st.limit, now, 0)
		}
		facts.Describe(d, st.limit, now, 0, false)
		d.Allowed, d.RetryAfter = true, 0
	default:
		st.facts.Describe(d, st.limit, now, c.Units(), false)
	}
}

// followClock moves the future times in the log of an entry to now. There are such times after the
// clock has stepped back.
func (sh *shard) followClock(e *entry, now int64) {
	if g := sh.log(e); g != nil && g.Stepped(now) {
		before := g.Bytes()
		g.Clamp(now)
		sh.budget.logs.Add(int64(g.Bytes() - before))
	}
}

// addToLog charges a log, and keeps it until none of the lists of limits that were charged to it
// needs it any more.
func (sh *shard) addToLog(e *entry, c *headgate.Check, units, now int64) {
	g := sh.log(e)
	if g == nil {
		g = new(algorithm.Log)
		sh.setLog(e, g)
	}
	before := g.Bytes()
	g.Open(now, algorithm.NeedOf(c.Rule))
	if sh.mustMerge(g, now) {
		g.Merge(now, units)
	} else {
		g.Add(now, units)
	}
	if grown := g.Bytes() - before; grown != 0 {
		sh.budget.logs.Add(int64(grown))
	}
	e.expires = max(e.expires, g.Until())
}

// mustMerge reports whether a log has to take units without growing. That is so if memory is full,
// or would be full if the log doubled, which is the most that it grows at once.
func (sh *shard) mustMerge(g *algorithm.Log, now int64) bool {
	if g.Len() == 0 || g.Len()*algorithm.EntryBytes < g.Bytes() || sh.budget.room() >= int64(g.Bytes()) {
		return false
	}
	sh.budget.reclaim(now)
	sh.merged++
	return true
}

// reset forgets what a key has used.
func (sh *shard) reset(rule *headgate.Rule, hash uint64) {
	for i := range rule.Limits() {
		st := step{hash: mix(hash, slotOf(&rule.Limits()[i]))}
		switch e := sh.table.find(st.hash); {
		case e.hash == 0:
		case e.used == logMark:
			sh.freeLog(e)
		default:
			for j := 1; algorithm.HasSlots(e.state()) && j < algorithm.BucketSlots; j++ {
				sh.table.find(furtherSlot(st.hash, j)).set(algorithm.State{}, 0)
			}
			e.set(algorithm.State{}, 0)
		}
	}
}

func (sh *shard) addTo(all *Stats) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	all.Counters += sh.table.filled
	all.Logs += len(sh.logs) - len(sh.freeLogs)
	all.Shared += sh.shared
	all.Merged += sh.merged
}
