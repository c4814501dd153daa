package memory

import (
	"math"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// logMark, in the field used, says that the entry's stamp is the index of a log. No counter
// ever has that many units in use.
const logMark = math.MaxUint32

// dropIdleLogs frees the logs of entries that the next rebuild drops.
func (sh *shard) dropIdleLogs(now headgate.Instant) {
	if len(sh.logs) == len(sh.freeLogs) {
		return
	}
	for i := range sh.table.entries {
		if e := &sh.table.entries[i]; e.used == logMark && !sh.table.busy(e, now) {
			sh.freeLog(e)
		}
	}
}

func (sh *shard) freeLog(e *entry) {
	i := e.stamp()
	sh.budget.logs.Add(-int64(sh.logs[i].Bytes() + logBytes))
	sh.logs[i] = nil
	sh.freeLogs = append(sh.freeLogs, i)
	e.set(algorithm.State{}, 0)
}

// log returns the log of an entry, or nil.
func (sh *shard) log(e *entry) *algorithm.Log {
	if e.used != logMark {
		return nil
	}
	return sh.logs[e.stamp()]
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
		e.setStamp(sh.freeLogs[n-1])
		sh.freeLogs = sh.freeLogs[:n-1]
		sh.logs[e.stamp()] = g
	} else {
		e.setStamp(int64(len(sh.logs)))
		sh.logs = append(sh.logs, g)
	}
	e.used = logMark
}

// lookAtLog is lookAtState for a sliding window.
func (sh *shard) lookAtLog(st *step, c *headgate.Check, hash uint64, now headgate.Instant) {
	st.hash, st.shared = sh.placeLog(c.Rule, hash, now)
	e := sh.table.find(st.hash)
	sh.followClock(e, now)
	if g := sh.log(e); g != nil {
		st.facts = g.Facts(st.limit, now, c.Units())
	}
	st.fits = st.facts.Fits(st.limit, c.Units())
}

// stepLog finishes the step of a sliding window, and describes the window in d. For the rule's
// first window it also charges or refunds the log.
func (sh *shard) stepLog(st *step, op headgate.Op, charge bool, c *headgate.Check, now headgate.Instant, d *headgate.Decision) {
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
				sh.refundLog(g, c.Units(), sh.wall.read(c.At))
			}
			facts = g.Facts(st.limit, now, 0)
		}
		facts.Describe(d, st.limit, now, 0, false)
		d.Allowed, d.RetryAfter = true, 0
	default:
		st.facts.Describe(d, st.limit, now, c.Units(), false)
	}
	d.At = sh.wall.shown(now)
}

// followClock moves the future times in the log of an entry to now. There are such times after the
// clock has stepped back.
func (sh *shard) followClock(e *entry, now headgate.Instant) {
	if g := sh.log(e); g != nil && g.Stepped(now) {
		before := g.Bytes()
		g.Clamp(now)
		sh.budget.logs.Add(int64(g.Bytes() - before))
	}
}

// addToLog charges a log, and keeps it until none of the lists of limits that were charged to it
// needs it any more.
func (sh *shard) addToLog(e *entry, c *headgate.Check, units int64, now headgate.Instant) {
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
	e.until = max(e.until, until(g.Until()))
}

// mustMerge reports whether a log has to take units without growing. That is so if memory is full,
// or would be full if the log doubled, which is the most that it grows at once.
func (sh *shard) mustMerge(g *algorithm.Log, now headgate.Instant) bool {
	if g.Len() == 0 || g.Len()*algorithm.EntryBytes < g.Bytes() || sh.budget.room() >= int64(g.Bytes()) {
		return false
	}
	sh.budget.reclaim(now)
	sh.merged++
	return true
}

// fitsLog reports whether a log that keys share has room for the units.
func (sh *shard) fitsLog(e *entry, l *headgate.Limit, units int64, now headgate.Instant) bool {
	g := sh.log(e)
	if g == nil {
		return units <= l.Capacity()
	}
	return g.Facts(l, now, units).Fits(l, units)
}

// settleLog charges units to a log whether they fit or not, or takes them back if they are
// negative.
func (sh *shard) settleLog(e *entry, place uint64, c *headgate.Check, units int64, now headgate.Instant) {
	g := sh.log(e)
	if units < 0 {
		if g != nil {
			sh.refundLog(g, -units, sh.wall.read(c.At))
		}
		return
	}
	if g != nil {
		if units = g.Owable(now, units, algorithm.NeedOf(c.Rule)); units <= 0 {
			return
		}
	}
	sh.insert(e, place)
	sh.addToLog(e, c, units, now)
}

// refundLog takes units back from a log.
func (sh *shard) refundLog(g *algorithm.Log, units int64, at headgate.Instant) {
	before := g.Bytes()
	g.Refund(units, at)
	sh.budget.logs.Add(int64(g.Bytes() - before))
}
