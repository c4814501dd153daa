package algorithm

import (
	"slices"
	"sort"

	"github.com/headgate/headgate"
)

// Entry is one admitted request in a [Log].
type Entry struct {
	// Time is when it was admitted.
	Time headgate.Instant
	// Sum is its cost and that of all entries ever before it.
	Sum int64
}

// EntryBytes is the memory that an [Entry] takes.
const EntryBytes = 16

// Log is the state of a rule's sliding windows: the times of admitted requests,
// oldest first. All windows of the rule search the same log, and so do those of every
// other list of limits that the rule has for the same key. What it remembers is decided
// by its spans; see [Span]. The zero Log is empty. It is not safe for concurrent use.
type Log struct {
	entries []Entry // never decreasing in Time, increasing in Sum
	base    int64   // the Sum before the first entry
	spans   []Span  // of different horizons, the longest first
	first   [1]Span // what spans lies in until there are more: nearly every log has one
}

// Len is the number of entries.
func (g *Log) Len() int { return len(g.entries) }

// Bytes is the memory that the entries take, and those that there is room for.
func (g *Log) Bytes() int { return cap(g.entries) * EntryBytes }

// Clone returns a log of the same entries that shares no memory with this one.
func (g *Log) Clone() *Log {
	return &Log{entries: slices.Clone(g.entries), base: g.base, spans: slices.Clone(g.spans)}
}

// WindowFacts are what a log knows of one window, enough for a [Decision].
type WindowFacts struct {
	// Used is the number of units inside the window.
	Used int64
	// Blocking is the time of the unit that must leave before the cost fits. It
	// is only set if the cost does not fit, but can. Of a unit that is forgotten before
	// it leaves it is the time of one that leaves then.
	Blocking headgate.Instant
	// Newest is the time of the newest unit, if Used is not zero; as Blocking is.
	Newest headgate.Instant
}

// Facts reads from the log what there is to know of the window of l at now: whether
// cost fits, and when it will. A unit admitted at t is inside until t + period, or until
// the log forgets it, if the window is longer than what is remembered; see [Span]. The
// log must not be Stepped.
func (g *Log) Facts(l *headgate.Limit, now headgate.Instant, cost int64) WindowFacts {
	n := len(g.entries)
	if n == 0 {
		return WindowFacts{}
	}
	first := g.after(max(plus(now, -periodOf(l)), g.forgotten(now)))
	if first == n {
		return WindowFacts{}
	}
	last := g.entries[n-1]
	f := WindowFacts{Used: last.Sum - g.before(first), Newest: plus(g.leaves(last.Time, l), -periodOf(l))}
	if f.Used+cost > l.Count && cost <= l.Count {
		unit := last.Sum + cost - l.Count // the last unit, counted from the start of time, that must leave
		i := sort.Search(n, func(i int) bool { return g.entries[i].Sum >= unit })
		f.Blocking = plus(g.leaves(g.entries[i].Time, l), -periodOf(l))
	}
	return f
}

// after is the first entry later than edge.
func (g *Log) after(edge headgate.Instant) int {
	return sort.Search(len(g.entries), func(i int) bool { return g.entries[i].Time > edge })
}

// before is the Sum of everything before entry i.
func (g *Log) before(i int) int64 {
	if i == 0 {
		return g.base
	}
	return g.entries[i-1].Sum
}

// Fits reports whether the window has room for cost.
func (f WindowFacts) Fits(l *headgate.Limit, cost int64) bool { return f.Used+cost <= l.Count }

// Describe fills d as the function Describe does. charged says whether cost has
// been added to the log since the facts were read.
func (f WindowFacts) Describe(d *headgate.Decision, l *headgate.Limit, now headgate.Instant, cost int64, charged bool) {
	d.Limit, d.Allowed, d.At = l, f.Fits(l, cost), now
	d.RetryAfter, d.ResetAfter, d.Delay = 0, 0, 0
	switch {
	case charged:
		f.Used, f.Newest = f.Used+cost, now
	case cost > l.Count:
		d.RetryAfter = headgate.Never
	case !d.Allowed:
		d.RetryAfter = (minus(f.Blocking, now) + periodOf(l)).Duration()
	}
	d.Remaining = max(0, l.Count-f.Used)
	if f.Used > 0 {
		d.ResetAfter = (minus(f.Newest, now) + periodOf(l)).Duration()
	}
}

// Stepped reports whether the clock has stepped back before the newest entry.
func (g *Log) Stepped(now headgate.Instant) bool {
	n := len(g.entries)
	return n > 0 && g.entries[n-1].Time > now
}

// Clamp moves entries that lie in the future, because the clock has stepped back,
// to now. It must be called when Stepped is true, whatever is decided: if it were
// not, the log would stand still until the clock has caught up.
func (g *Log) Clamp(now headgate.Instant) {
	g.settle()
	for i := len(g.entries) - 1; i >= 0 && g.entries[i].Time > now; i-- {
		g.entries[i].Time = now
	}
	for i := range g.spans {
		s := &g.spans[i]
		s.Until = min(s.Until, plus(now, s.Horizon+s.Horizon/spanSlack))
	}
}

// settle forgets for good what was forgotten when the newest entry came, so that it
// does not come back when that entry is moved or taken away.
func (g *Log) settle() {
	n := len(g.entries)
	if n == 0 {
		return
	}
	newest := g.entries[n-1].Time
	g.drop(g.after(g.forgotten(newest)))
	g.spans = slices.DeleteFunc(g.spans, func(s Span) bool { return s.Until <= newest })
}

// Owable is how much of cost is counted that need not fit: no log ever holds more than
// MaxCount units within the horizon of the list that is charged. The log must not be
// Stepped.
func (g *Log) Owable(now headgate.Instant, cost int64, need Need) int64 {
	live := g.before(len(g.entries)) - g.before(g.after(max(plus(now, -need.Horizon), g.forgotten(now))))
	return min(cost, headgate.MaxCount-live)
}

// Add appends an entry to a log that was opened for it; see [Log.Open].
func (g *Log) Add(now headgate.Instant, cost int64) {
	g.entries = append(g.entries, Entry{now, g.before(len(g.entries)) + cost})
}

// Merge is Add for a log that must not grow, because a store has no memory left: it
// adds cost to the newest entry and moves that to now. The older units of the entry
// leave their windows later than they would have, never earlier.
func (g *Log) Merge(now headgate.Instant, cost int64) {
	n := len(g.entries)
	if n == 0 {
		g.Add(now, cost)
		return
	}
	g.entries[n-1].Sum += cost
	g.entries[n-1].Time = max(now, g.entries[n-1].Time)
}

// Equal reports whether two logs hold the same.
func (g *Log) Equal(o *Log) bool {
	return g.base == o.base && slices.Equal(g.entries, o.entries) && slices.Equal(g.spans, o.spans)
}

// trim forgets entries at edge and before, once it is worth while, and frees
// memory when little of it is in use.
func (g *Log) trim(edge headgate.Instant) {
	if n, dead := len(g.entries), g.after(edge); dead == n || dead*4 >= n {
		g.drop(dead)
	}
}

// keptEntries is how many entries an empty log keeps room for.
const keptEntries = 8

// drop forgets the first entries.
func (g *Log) drop(dead int) {
	switch {
	case dead == 0:
		return
	case dead < len(g.entries):
	case cap(g.entries) > keptEntries:
		g.entries, g.base = nil, 0
		return
	default: // a key that comes back now and then needs no new memory each time
		g.entries, g.base = g.entries[:0], 0
		return
	}
	g.base = g.before(dead)
	live := g.entries[dead:]
	if len(live)*4 < cap(g.entries) {
		g.entries = append(make([]Entry, 0, len(live)*2), live...)
		return
	}
	g.entries = g.entries[:copy(g.entries, live)]
}

// Refund takes back cost units: the newest of those charged at the time at or
// before, or of all if at is zero. Never more than the log holds is given back.
func (g *Log) Refund(cost int64, at headgate.Instant) {
	g.settle()
	last := len(g.entries) // entries from here on came after at
	for at != 0 && last > 0 && g.entries[last-1].Time > at {
		last--
	}
	first, left := last, cost // entries from first to last are emptied
	for first > 0 {
		units := g.entries[first-1].Sum - g.before(first-1)
		if units > left {
			break
		}
		left -= units
		first--
	}
	if first > 0 {
		g.entries[first-1].Sum -= left // the one before is cut
		left = 0
	}
	rest := g.entries[last:]
	for i := range rest {
		rest[i].Sum -= cost - left
	}
	g.entries = append(g.entries[:first], rest...)
	if len(g.entries) == 0 {
		g.base, g.spans = 0, g.spans[:0]
	}
}
