package algorithm

import (
	"cmp"
	"slices"
	"sort"

	"github.com/headgate/headgate"
)

// Entry is one admitted request in a [Log].
type Entry struct {
	// Time is when the request was admitted.
	Time headgate.Instant
	// Sum is the cost of this entry and of all earlier ones together.
	Sum int64
}

// EntryBytes is the size of an [Entry] in bytes.
const EntryBytes = 16

// Log is the state of a rule's sliding windows: the times of admitted requests, oldest first. All
// windows of the rule share one log, and so do all other lists of limits that the rule has for the
// same key. Its spans decide how long it remembers; see [Span]. The zero Log is empty. A Log is not
// safe for concurrent use.
type Log struct {
	entries []Entry // never decreasing in Time, increasing in Sum
	base    int64   // the Sum before the first entry
	dead    int     // about how many entries are forgotten: where the next search begins
	spans   []Span  // of different horizons, the longest first
	first   [1]Span // the memory of spans while there is only one, as in nearly every log
}

// NewLog returns a log of the given entries, oldest first. Their Time must never decrease. Their
// Sum must increase, and the first Sum must be above zero. Without spans, the log remembers
// nothing. The log keeps both slices, so the caller must not change them afterwards.
func NewLog(entries []Entry, spans []Span) *Log {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(b.Horizon, a.Horizon) })
	return &Log{entries: entries, spans: spans}
}

// Entries appends the entries of the log to dst, oldest first, and returns the extended slice. Each
// Sum counts from the first entry. It is for stores that keep a log as bytes.
func (g *Log) Entries(dst []Entry) []Entry {
	for _, e := range g.entries {
		dst = append(dst, Entry{Time: e.Time, Sum: e.Sum - g.base})
	}
	return dst
}

// Newest returns the time of the newest entry, or 0 if there is none.
func (g *Log) Newest() headgate.Instant {
	if n := len(g.entries); n > 0 {
		return g.entries[n-1].Time
	}
	return 0
}

// Spans returns the log's spans, the longest first. The caller must not change them.
func (g *Log) Spans() []Span { return g.spans }

// Len returns the number of entries.
func (g *Log) Len() int { return len(g.entries) }

// Bytes returns the memory that is allocated for entries, in use or not.
func (g *Log) Bytes() int { return cap(g.entries) * EntryBytes }

// Clone returns a log with the same entries and spans that shares no memory with this one.
func (g *Log) Clone() *Log {
	return &Log{entries: slices.Clone(g.entries), base: g.base, spans: slices.Clone(g.spans)}
}

// WindowFacts are what is needed from a log to decide about one window.
type WindowFacts struct {
	// Used is the number of units inside the window.
	Used int64
	// Blocking is the time of the unit that must leave the window before the cost fits. It is set
	// only if the cost does not fit now but can fit later. If the log forgets that unit early,
	// Blocking is the time of a unit that would leave the window at that moment.
	Blocking headgate.Instant
	// Newest is the time of the newest unit, adjusted as Blocking is. It is set only if Used is not
	// 0.
	Newest headgate.Instant
}

// Facts returns the facts about the window of l at now, for a request of the given cost. A unit
// admitted at t is inside the window until t + period. If the log remembers less than a period, the
// unit is inside until the log forgets it; see [Span]. Stepped must be false for the log.
func (g *Log) Facts(l *headgate.Limit, now headgate.Instant, cost int64) WindowFacts {
	n := len(g.entries)
	if n == 0 {
		return WindowFacts{}
	}
	var first int
	if edge, forgotten := plus(now, -periodOf(l)), g.forgotten(now); edge > forgotten {
		first = g.after(edge)
	} else {
		first = g.live(forgotten)
	}
	if first == n {
		return WindowFacts{}
	}
	last := g.entries[n-1]
	f := WindowFacts{Used: last.Sum - g.before(first), Newest: plus(g.leaves(last.Time, l), -periodOf(l))}
	if f.Used+cost > l.Count && cost <= l.Count {
		unit := last.Sum + cost - l.Count // the Sum up to and including the last unit that must leave
		i := sort.Search(n, func(i int) bool { return g.entries[i].Sum >= unit })
		f.Blocking = plus(g.leaves(g.entries[i].Time, l), -periodOf(l))
	}
	return f
}

// after returns the index of the first entry later than edge.
func (g *Log) after(edge headgate.Instant) int {
	return sort.Search(len(g.entries), func(i int) bool { return g.entries[i].Time > edge })
}

// live is after for an edge that [Log.forgotten] returned. It begins where that was last time, and
// looks further and further away. So it takes no longer in a log of many entries, unless many have
// been forgotten since.
func (g *Log) live(edge headgate.Instant) int {
	n := len(g.entries)
	from := min(g.dead, n)
	if from > 0 && g.entries[from-1].Time > edge {
		from = 0
	}
	for step := 1; from < n && g.entries[from].Time <= edge; step *= 2 {
		rest := g.entries[from:min(from+step, n)]
		if rest[len(rest)-1].Time > edge {
			from += sort.Search(len(rest), func(i int) bool { return rest[i].Time > edge })
			break
		}
		from += len(rest)
	}
	g.dead = from
	return from
}

// before returns the Sum of all entries before entry i.
func (g *Log) before(i int) int64 {
	if i == 0 {
		return g.base
	}
	return g.entries[i-1].Sum
}

// Fits reports whether the window has room for cost.
func (f WindowFacts) Fits(l *headgate.Limit, cost int64) bool { return f.Used+cost <= l.Count }

// Describe fills d like the function [Describe]. charged says whether cost has been added to the
// log since the facts were read.
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

// Stepped reports whether the clock has stepped back to before the newest entry.
func (g *Log) Stepped(now headgate.Instant) bool {
	n := len(g.entries)
	return n > 0 && g.entries[n-1].Time > now
}

// Clamp moves entries whose time is after now, because the clock has stepped back, to now. The
// caller must call it whenever Stepped is true, whatever is decided. Otherwise nothing would leave
// the log until the clock has caught up.
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

// settle removes the entries that were forgotten when the newest entry came. They must not come
// back when that entry is moved or removed.
func (g *Log) settle() {
	n := len(g.entries)
	if n == 0 {
		return
	}
	newest := g.entries[n-1].Time
	g.drop(g.live(g.forgotten(newest)))
	g.spans = slices.DeleteFunc(g.spans, func(s Span) bool { return s.Until <= newest })
}

// Owable returns how many of cost units to charge that need not fit. No log ever holds more than
// 10^9 units within the horizon of the list that is charged, so the result may be below cost.
// Stepped must be false for the log.
func (g *Log) Owable(now headgate.Instant, cost int64, need Need) int64 {
	live := g.before(len(g.entries)) - g.before(g.after(max(plus(now, -need.Horizon), g.forgotten(now))))
	return min(cost, maxLogged-live)
}

// Add appends an entry to a log that was opened for it; see [Log.Open].
func (g *Log) Add(now headgate.Instant, cost int64) {
	g.entries = append(g.entries, Entry{now, g.before(len(g.entries)) + cost})
}

// Merge is Add for a log that must not grow, because a store has no memory left. It adds cost to
// the newest entry and moves that entry to now. Its older units then leave their windows late,
// never early.
func (g *Log) Merge(now headgate.Instant, cost int64) {
	n := len(g.entries)
	if n == 0 {
		g.Add(now, cost)
		return
	}
	g.entries[n-1].Sum += cost
	g.entries[n-1].Time = max(now, g.entries[n-1].Time)
}

// Equal reports whether two logs have the same entries and spans.
func (g *Log) Equal(o *Log) bool {
	return g.base == o.base && slices.Equal(g.entries, o.entries) && slices.Equal(g.spans, o.spans)
}

// trim removes the entries at and before forgotten if they are at least a quarter of all.
func (g *Log) trim(forgotten headgate.Instant) {
	if n, dead := len(g.entries), g.live(forgotten); dead == n || dead*4 >= n {
		g.drop(dead)
	}
}

// keptEntries is the largest capacity that an empty log keeps.
const keptEntries = 8

// drop removes the first dead entries. It frees memory if less than a quarter of it stays in use.
func (g *Log) drop(dead int) {
	g.dead = max(0, g.dead-dead)
	switch {
	case dead == 0:
		return
	case dead < len(g.entries):
	case cap(g.entries) > keptEntries:
		g.entries, g.base = nil, 0
		return
	default: // so that a key that comes back now and then allocates nothing
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

// Refund takes back cost units: the newest of those that were charged at the time at or earlier, or
// the newest of all if at is 0. It never takes back more than the log holds.
func (g *Log) Refund(cost int64, at headgate.Instant) {
	g.settle()
	last := len(g.entries) // entries from here on are later than at
	for at != 0 && last > 0 && g.entries[last-1].Time > at {
		last--
	}
	first, left := last, cost // the entries from first up to last are removed
	for first > 0 {
		units := g.entries[first-1].Sum - g.before(first-1)
		if units > left {
			break
		}
		left -= units
		first--
	}
	if first > 0 {
		g.entries[first-1].Sum -= left // the entry before them loses the rest
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
