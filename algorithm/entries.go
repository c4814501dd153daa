package algorithm

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate"
)

// NewLog returns a log of the given entries, oldest first: never decreasing in Time,
// increasing in Sum from more than zero. Without spans it remembers nothing. It keeps the
// slices, which nobody else may change then.
func NewLog(entries []Entry, spans []Span) *Log {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(b.Horizon, a.Horizon) })
	return &Log{entries: entries, spans: spans}
}

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
func (g *Log) Newest() headgate.Instant {
	if n := len(g.entries); n > 0 {
		return g.entries[n-1].Time
	}
	return 0
}

// Spans are the log's spans, the longest first. The caller must not change them.
func (g *Log) Spans() []Span { return g.spans }
