package algorithm

import "github.com/headgate/headgate"

// NewLog returns a log of the given entries, oldest first: never decreasing in Time,
// increasing in Sum from more than zero. It keeps the slice, which nobody else may
// change then.
func NewLog(entries []Entry) *Log { return &Log{entries: entries} }

// Entries appends what the log holds to dst, oldest first, with the Sum counted from
// the first entry, and returns the extended slice: for stores that keep a log as
// bytes.
func (g *Log) Entries(dst []Entry) []Entry {
	for _, e := range g.entries {
		dst = append(dst, Entry{Time: e.Time, Sum: e.Sum - g.base})
	}
	return dst
}

// Newest is the time of the newest entry, or 0 if there is none.
func (g *Log) Newest() int64 {
	if n := len(g.entries); n > 0 {
		return g.entries[n-1].Time
	}
	return 0
}

// OweMerged is Owe for a log that must not grow; see [Log.Merge].
func (g *Log) OweMerged(now, cost, horizon int64) {
	live := g.before(len(g.entries)) - g.before(g.after(now-horizon))
	if cost = min(cost, headgate.MaxCount-live); cost > 0 {
		g.Merge(now, cost)
	}
}
