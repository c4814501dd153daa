package memory

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// logMark + the index of a log is the stamp of an entry that has one. No state has so late a stamp.
const logMark = 1 << 60

func (e *entry) isLog() bool { return e.stamp() >= logMark && !e.asWord() }

// dropIdleLogs frees the logs of entries that the next rebuild drops.
func (sh *shard) dropIdleLogs(now headgate.Instant) {
	if len(sh.logs) == len(sh.freeLogs) {
		return
	}
	for i := range sh.table.entries {
		if e := &sh.table.entries[i]; e.isLog() && !sh.table.busy(e, now) {
			sh.freeLog(e)
		}
	}
}

func (sh *shard) freeLog(e *entry) {
	i := e.stamp() - logMark
	sh.budget.logs.Add(-int64(sh.logs[i].Bytes() + logBytes))
	sh.logs[i] = nil
	sh.freeLogs = append(sh.freeLogs, i)
	e.set(algorithm.State{}, 0)
}

// log returns the log of an entry, or nil.
func (sh *shard) log(e *entry) *algorithm.Log {
	if !e.isLog() {
		return nil
	}
	return sh.logs[e.stamp()-logMark]
}

// logBytes is the memory that a log takes in addition to its entries: the struct, its first span
// and its element of shard.logs.
const logBytes = 104

// newLog is the memory that must be free for a new log. With less, new keys share logs.
const newLog = logBytes + 16*algorithm.EntryBytes

// setLog gives a log to an entry without one.
func (sh *shard) setLog(e *entry, g *algorithm.Log) {
	sh.budget.logs.Add(int64(g.Bytes() + logBytes))
	if n := len(sh.freeLogs); n > 0 {
		i := sh.freeLogs[n-1]
		sh.freeLogs = sh.freeLogs[:n-1]
		sh.logs[i] = g
		e.setStamp(logMark + i)
	} else {
		e.setStamp(logMark + int64(len(sh.logs)))
		sh.logs = append(sh.logs, g)
	}
}

// lookAtLog reads the log of a step, and says whether the cost fits.
func (sh *shard) lookAtLog(st *step, cost int64, now headgate.Instant) {
	sh.followClock(st.entry, now)
	st.facts = algorithm.WindowFacts{}
	if g := sh.log(st.entry); g != nil {
		st.facts = g.Facts(st.limit, now, cost)
	}
	st.fits = st.facts.Fits(st.limit, cost)
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
	e.setUntil(max(e.until, until(g.Until())))
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
func (sh *shard) fitsLog(g *algorithm.Log, l *headgate.Limit, units int64, now headgate.Instant) bool {
	if g == nil {
		return units <= l.Capacity()
	}
	return g.Facts(l, now, units).Fits(l, units)
}

// settleLog charges units to a log whether they fit or not, or takes them back if they are
// negative.
func (sh *shard) settleLog(st *step, c *headgate.Check, units int64, now headgate.Instant) {
	g := sh.log(st.entry)
	if g == nil {
		g = new(algorithm.Log)
	}
	if units < 0 {
		before := g.Bytes()
		g.Refund(-units, sh.wall.read(c.At))
		sh.budget.logs.Add(int64(g.Bytes() - before))
		return
	}
	if units = g.Owable(now, units, algorithm.NeedOf(c.Rule)); units > 0 {
		st.entry = sh.insert(st.entry, st.place)
		sh.addToLog(st.entry, c, units, now)
	}
}
