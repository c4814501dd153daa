package memory

import (
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

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
	outrun  bool                  // an open entry has become a held one since the clock was read

	logs     []*algorithm.Log // the stamp of a log's entry is its index here
	freeLogs []int64          // free indices of logs
	stuck    int              // decisions since the last rebuild whose entries could not be open
	budget   *budget
	commons  map[uint64]struct{} // the hashes of shared counters that are in use
	shared   uint64              // see Stats.Shared
	merged   uint64              // see Stats.Merged
	_        [16]byte
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
		atomic.StoreUint64(&e.hash, hash)
		sh.table.filled++
	}
}

// put stores a counter until it is fully free. There must be room for its further states; load
// reserves it.
func (sh *shard) put(st *step, c algorithm.Counter, until uint32) {
	if s, single := c.Single(st.limit); single { // the usual case, and cheaper than copying six slots
		sh.putState(st.hash, s, until)
		return
	}
	slots, n := c.Slots(st.limit)
	for i := range n {
		sh.putState(furtherSlot(st.hash, i), slots[i], until)
	}
}

func (sh *shard) putState(hash uint64, s algorithm.State, until uint32) {
	e := sh.table.find(hash)
	if s.IsZero() && e.hash == 0 {
		return
	}
	sh.insert(e, hash)
	e.set(s, until)
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
func (sh *shard) load(st *step, reserved int, now headgate.Instant) (further int) {
	now = sh.onTime(st.limit, now)
	e := sh.table.find(st.hash)
	sh.hold(e, st.limit, now)
	if s, plain := algorithm.Plain(st.limit, e.state()); plain {
		st.state = algorithm.Counter{State: algorithm.Advance(st.limit, s, now)}
		if algorithm.Moved(s, st.state.State, now) {
			e.set(algorithm.Mark(st.limit, st.state.State), e.until)
		}
		return 0
	}
	sh.reserve(reserved+algorithm.BucketSlots, now)
	c := algorithm.LoadCounter(st.limit, true, func(i int) algorithm.State { return sh.table.find(furtherSlot(st.hash, i)).state() })
	var moved bool
	if st.state, moved = c.Advance(st.limit, now); moved {
		free := sh.table.find(st.hash).until
		if b := st.state.Bucket; b != nil {
			free = max(free, until(now+headgate.Instant(b.Busy(now))))
		}
		sh.put(st, st.state, free)
	}
	return algorithm.BucketSlots
}

// keep postpones the expiry of a counter that was only read, because its limit may have been
// lowered since it was charged.
func (sh *shard) keep(e *entry, expires headgate.Instant) {
	if e.until != 0 {
		e.until = max(e.until, until(expires))
	}
}

// keepAll is keep for all entries of a counter.
func (sh *shard) keepAll(st *step, expires headgate.Instant) {
	first := sh.table.find(st.hash)
	sh.keep(first, expires)
	for i := 1; algorithm.HasSlots(first.state()) && i < algorithm.BucketSlots; i++ {
		sh.keep(sh.table.find(furtherSlot(st.hash, i)), expires)
	}
}

// hold makes the entry a held one. l is the limit that asks.
func (sh *shard) hold(e *entry, l *headgate.Limit, now headgate.Instant) {
	if e.isHeld() {
		return
	}
	for {
		w := atomic.LoadUint64(&e.word)
		s := algorithm.OfWord(l, int64(e.count), algorithm.Word(w), now, sh.table.origin)
		if atomic.CompareAndSwapUint64(&e.word, w, held|uint64(s.Stamp)) {
			e.used, e.extra = s.Used, s.Extra
			e.until = until(sh.table.origin + headgate.Instant(algorithm.Word(w).FreeAt(int64(e.until))))
			sh.outrun = true
			return
		}
	}
}

// open makes the entry an open one with the given state, if it can be.
func (sh *shard) open(e *entry, l *headgate.Limit, s algorithm.State) bool {
	if !sh.budget.steady || !algorithm.HasWord(l) {
		return false
	}
	w, ok := algorithm.WordOf(l, s, sh.table.origin)
	if !ok {
		return false
	}
	num, _ := l.Rate()
	if !e.open(w, l.Count, num) {
		sh.stuck++
		return false
	}
	return true
}

// lookAtState reads the counter of a limit that is not a sliding window into its step. It returns
// how many further entries the counter may need; see load.
func (sh *shard) lookAtState(st *step, c *headgate.Check, hash uint64, reserved int, now headgate.Instant) int {
	st.hash, st.shared = sh.place(c.Rule, hash, st.limit.Slot(), now)
	further := sh.load(st, reserved, now)
	at := sh.onTime(st.limit, now)
	st.fits = st.state.Fits(st.limit, at, c.Units())
	return further
}

// stepState finishes the step of a limit that is not a sliding window. It charges, punishes or
// refunds the counter, and describes it in d.
func (sh *shard) stepState(st *step, op headgate.Op, charge, punish bool, c *headgate.Check, now headgate.Instant, d *headgate.Decision) {
	after, fits, at := st.state, st.fits, sh.onTime(st.limit, now)
	switch {
	case punish:
		after.State = algorithm.Punish(st.limit, after.State, at)
	case charge:
		after = after.Charge(st.limit, at, c.Units())
	case op == headgate.OpRefund:
		if !st.shared { // a key must not give back what other keys have used
			after = after.Refund(st.limit, at, c.Units(), sh.told(st.limit, c.At), 0)
		}
		fits = true
	}
	after.Describe(d, st.limit, st.state, at, c.Units(), fits)
	d.At = now
	if op == headgate.OpRefund {
		d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
	}
	expires := after.Expires(d)
	d.At = sh.wall.shown(now)
	if charge || punish || op == headgate.OpRefund {
		sh.put(st, after, until(expires))
	} else {
		sh.keepAll(st, expires)
	}
}

// reset forgets what a key has used.
func (sh *shard) reset(rule *headgate.Rule, hash uint64) {
	for i := range rule.Limits() {
		st := step{hash: counterOf(hash, slotOf(&rule.Limits()[i]))}
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
