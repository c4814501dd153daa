package memory

import (
	"math"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// shard is a part of the store's keys. mu guards all of it; a request for one
// key locks one shard, once.
type shard struct {
	mu       sync.Mutex
	table    table
	logs     []*algorithm.Log // found by the stamp of their entry
	freeLogs []int64          // places in logs that can be used again
	logBytes int
	maxBytes int
	last     int64 // the latest time, by the store's own clock, in µs
	sweepAt  int64 // when to look for idle counters again, in µs
	full     bool  // new keys share counters
	shared   uint64
	merged   uint64
	_        [8]byte // shards do not share cache lines
}

const (
	minSize    = 16
	sweepEvery = 60 * 1_000_000
	// sweepFull is how often idle counters are looked for when memory is full.
	sweepFull = 1_000_000
	// sharedCounters is how many counters a rule's new keys share in each shard
	// when memory is full, and spare the places kept for them.
	sharedCounters = 4
	spare          = 64
	// logMark is the used of an entry whose stamp is the place of a log. No
	// counter ever uses so many units.
	logMark = math.MaxUint32
)

// reserve sees to it that n entries can be inserted.
func (sh *shard) reserve(n int, now int64) {
	if now < sh.sweepAt && sh.table.room(n) {
		return
	}
	sh.makeRoom(n, now)
}

// makeRoom drops idle counters and resizes the table to what is in use.
func (sh *shard) makeRoom(n int, now int64) {
	sh.dropIdleLogs(now)
	live := sh.table.live(now)
	most := max(minSize, (sh.maxBytes-sh.logBytes)/entryBytes)
	sh.full = (live+n)*8 > most*maxLoad
	sh.sweepAt = now + sweepEvery
	need := (live+n)*8/maxLoad + 1
	size := len(sh.table.entries)
	switch {
	case sh.full:
		sh.sweepAt = now + sweepFull
		size = max(size, need+spare)
	case need > size*7/8 || need < size/4:
		size = min(max(minSize, need*3/2), most)
	}
	if size == len(sh.table.entries) && sh.table.room(n) && live > sh.table.filled*3/4 {
		return // little would be gained
	}
	sh.table.rebuild(now, size)
}

// dropIdleLogs frees the logs of entries that the next rebuild leaves out.
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
	sh.logBytes -= sh.logs[e.stamp].Bytes()
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

// newLog gives an entry an empty log.
func (sh *shard) newLog(e *entry) *algorithm.Log {
	g := new(algorithm.Log)
	if n := len(sh.freeLogs); n > 0 {
		e.stamp, sh.freeLogs = sh.freeLogs[n-1], sh.freeLogs[:n-1]
		sh.logs[e.stamp] = g
	} else {
		e.stamp = int64(len(sh.logs))
		sh.logs = append(sh.logs, g)
	}
	e.used = logMark
	return g
}

// place returns the hash to find the counters of a key under: its own, unless
// memory is full and it has none yet.
func (sh *shard) place(rule *headgate.Rule, hash uint64) uint64 {
	if !sh.full || sh.holds(rule, hash) {
		return hash
	}
	sh.shared++
	return mix(rule.ID(), hash%sharedCounters+2)
}

// holds reports whether all counters of a key exist.
func (sh *shard) holds(rule *headgate.Rule, hash uint64) bool {
	limits := rule.Limits()
	for i := range limits {
		if sh.table.find(mix(hash, slotOf(&limits[i]))).hash == 0 {
			return false
		}
	}
	return true
}

// slotOf names a limit's counter among those of its key. The sliding windows of
// a rule have one together.
func slotOf(l *headgate.Limit) uint64 {
	if l.Algorithm == headgate.SlidingWindow {
		return logSlot
	}
	return l.Slot()
}

// insert makes the place of hash, which reserve has kept, an entry.
func (sh *shard) insert(e *entry, hash uint64) {
	if e.hash == 0 {
		e.hash = hash
		sh.table.filled++
	}
}

// put stores the state of a counter until it is fully free.
func (sh *shard) put(hash uint64, s algorithm.State, expires int64) {
	e := sh.table.find(hash)
	if s.IsZero() && e.hash == 0 {
		return
	}
	sh.insert(e, hash)
	e.set(s, expires)
}

// advance brings a counter up to now. Its entry follows a clock that has stepped
// back.
func (sh *shard) advance(l *headgate.Limit, e *entry, now int64) algorithm.State {
	s := e.state()
	advanced := algorithm.Advance(l, s, now)
	if algorithm.Moved(s, advanced, now) {
		e.set(advanced, e.expires)
	}
	return advanced
}

// keep puts off the expiry of a counter that was looked at: its limit may have
// been lowered since it was charged.
func (sh *shard) keep(e *entry, expires int64) {
	if e.expires != 0 {
		e.expires = max(e.expires, expires)
	}
}

// takeOne is take for the most common request: one check with one limit that is
// not a sliding window.
func (sh *shard) takeOne(rule *headgate.Rule, l *headgate.Limit, hash uint64, now, cost int64, d *headgate.Decision) {
	sh.reserve(1, now)
	hash = mix(sh.place(rule, hash), l.Slot())
	e := sh.table.find(hash)
	before := sh.advance(l, e, now)
	after, fits := before, algorithm.Fits(l, before, now, cost)
	if fits {
		after = algorithm.Charge(l, before, now, cost)
	}
	algorithm.Describe(d, l, before, after, now, cost, fits)
	if fits {
		sh.insert(e, hash)
		e.set(after, now+d.ResetAfter.Microseconds())
	} else {
		sh.keep(e, now+d.ResetAfter.Microseconds())
	}
}

// stepLog finishes a sliding window: it charges or refunds the log, if it is the
// rule's first, and describes the window.
func (sh *shard) stepLog(st *step, op headgate.Op, charge bool, c *headgate.Check, now int64, d *headgate.Decision) {
	e := sh.table.find(st.hash)
	switch {
	case charge:
		if st.first {
			sh.insert(e, st.hash)
			sh.addToLog(e, c, now)
		}
		e.expires = max(e.expires, now+st.limit.Micros())
		st.facts.Describe(d, st.limit, now, c.Units(), true)
	case op == headgate.OpRefund:
		g := sh.log(e)
		if g == nil {
			g = new(algorithm.Log)
		} else if st.first {
			g.Refund(c.Units(), c.At, algorithm.Horizon(c.Rule))
		}
		g.Facts(st.limit, now, 0, algorithm.Horizon(c.Rule)).Describe(d, st.limit, now, 0, false)
		d.Allowed, d.RetryAfter = true, 0
	default:
		sh.keep(e, now+st.limit.Micros())
		st.facts.Describe(d, st.limit, now, c.Units(), false)
	}
}

// addToLog charges a log, and forgets what none of the rule's windows looks at.
func (sh *shard) addToLog(e *entry, c *headgate.Check, now int64) {
	g := sh.log(e)
	if g == nil {
		g = sh.newLog(e)
	}
	before := g.Bytes()
	g.Trim(now - algorithm.Horizon(c.Rule))
	grows := g.Len()*logEntryBytes >= g.Bytes()
	if grows && g.Len() > 0 && sh.bytes() >= sh.maxBytes {
		g.Merge(now, c.Units())
		sh.merged++
	} else {
		g.Add(now, c.Units())
	}
	sh.logBytes += g.Bytes() - before
}

const logEntryBytes = 16

func (sh *shard) bytes() int { return len(sh.table.entries)*entryBytes + sh.logBytes }

// reset forgets what a key has used.
func (sh *shard) reset(rule *headgate.Rule, hash uint64) {
	for i := range rule.Limits() {
		switch e := sh.table.find(mix(hash, slotOf(&rule.Limits()[i]))); {
		case e.hash == 0:
		case e.used == logMark:
			sh.freeLog(e)
		default:
			e.set(algorithm.State{}, 0)
		}
	}
}

func (sh *shard) addTo(all *Stats) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	all.Counters += sh.table.filled
	all.Logs += len(sh.logs) - len(sh.freeLogs)
	all.Bytes += int64(sh.bytes())
	all.Shared += sh.shared
	all.Merged += sh.merged
}
