package memory

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// large is a counter that has no room in an entry: the log of a rule's sliding windows, or a bucket
// that lists of limits of different rates share.
type large struct {
	log    *algorithm.Log
	bucket *algorithm.Bucket
}

func (x large) bytes() int64 {
	if x.log != nil {
		return logBytes + int64(x.log.Bytes())
	}
	return largeBytes + int64(x.bucket.Bytes())
}

const (
	// largeBytes is the memory of an element of shard.large.
	largeBytes = 16
	// logBytes is the memory of a log in addition to its entries: the struct, its first span and its
	// element of shard.large.
	logBytes = 96 + largeBytes
	// newLog is the memory that must be free for a new log. With less, new keys share logs.
	newLog = logBytes + 16*algorithm.EntryBytes
)

// setLarge makes the counter of an entry a large one.
func (sh *shard) setLarge(e *entry, x large) {
	if e.large() {
		sh.budget.large.Add(x.bytes() - sh.large[e.stamp].bytes())
		sh.large[e.stamp] = x
		return
	}
	sh.budget.large.Add(x.bytes())
	e.set(algorithm.State{}, isLarge, e.until)
	if n := len(sh.freeLarge); n > 0 {
		e.stamp = sh.freeLarge[n-1]
		sh.freeLarge = sh.freeLarge[:n-1]
		sh.large[e.stamp] = x
	} else {
		e.stamp = int64(len(sh.large))
		sh.large = append(sh.large, x)
	}
}

// free frees the counter of an entry, which stays in its place.
func (sh *shard) free(e *entry) {
	if e.large() {
		sh.budget.large.Add(-sh.large[e.stamp].bytes())
		sh.large[e.stamp] = large{}
		sh.freeLarge = append(sh.freeLarge, e.stamp)
	}
	e.set(algorithm.State{}, 0, 0)
}

// dropIdleLarge frees the large counters that the next rebuild drops.
func (sh *shard) dropIdleLarge(now headgate.Instant) {
	if len(sh.large) == len(sh.freeLarge) {
		return
	}
	for i := range sh.table.entries {
		if e := &sh.table.entries[i]; e.large() && !e.busy(now) {
			sh.free(e)
		}
	}
}

// log returns the log of an entry, or nil.
func (sh *shard) log(e *entry) *algorithm.Log {
	if !e.large() {
		return nil
	}
	return sh.large[e.stamp].log
}

// counter returns the counter of an entry that is not a log. If its units were used by a list of
// limits of another rate, it is a bucket that both lists share.
func (sh *shard) counter(e *entry, l *headgate.Limit) algorithm.Counter {
	switch {
	case e.large():
		return algorithm.Counter{Bucket: sh.large[e.stamp].bucket}
	case l.Algorithm <= headgate.LeakyBucket && e.used > 0 && int64(e.count) != l.Count:
		return algorithm.Counter{Bucket: algorithm.NewBucket(l, int64(e.count), e.state())}
	}
	return algorithm.Counter{State: e.state()}
}

// put stores the counter of a step; until says when it is fully free.
func (sh *shard) put(st *step, c algorithm.Counter, until uint32) {
	count := st.limit.Count
	if c.Bucket != nil {
		var shared bool
		if c.State, count, shared = c.Bucket.State(); shared {
			st.entry = sh.insert(st.entry, st.place)
			sh.setLarge(st.entry, large{bucket: c.Bucket})
			st.entry.until = until
			return
		}
	}
	if st.entry.hash == 0 && c.State.IsZero() {
		return
	}
	st.entry = sh.insert(st.entry, st.place)
	if st.entry.large() {
		sh.free(st.entry)
	}
	st.entry.set(c.State, count, until)
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
		sh.budget.large.Add(int64(g.Bytes() - before))
	}
}

// addToLog charges a log, and keeps it until none of the lists of limits that were charged to it
// needs it any more.
func (sh *shard) addToLog(e *entry, rule *headgate.Rule, units int64, now headgate.Instant) {
	g := sh.log(e)
	if g == nil {
		g = new(algorithm.Log)
		sh.setLarge(e, large{log: g})
	}
	before := g.Bytes()
	g.Open(now, algorithm.NeedOf(rule))
	if sh.mustMerge(g, now) {
		g.Merge(now, units)
	} else {
		g.Add(now, units)
	}
	if grown := g.Bytes() - before; grown != 0 {
		sh.budget.large.Add(int64(grown))
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
	switch {
	case units < 0 && g != nil:
		before := g.Bytes()
		g.Refund(-units, sh.wall.read(c.At))
		sh.budget.large.Add(int64(g.Bytes() - before))
		return
	case g != nil:
		units = g.Owable(now, units, algorithm.NeedOf(c.Rule))
	}
	if units > 0 {
		st.entry = sh.insert(st.entry, st.place)
		sh.addToLog(st.entry, c.Rule, units, now)
	}
}
