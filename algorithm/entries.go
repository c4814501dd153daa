package algorithm

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate"
)

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
