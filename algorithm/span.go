package algorithm

import (
	"sort"

	"github.com/headgate/headgate"
)

// Need is what the sliding windows of one list of limits require of their log.
type Need struct {
	Horizon Micros // the longest of their periods, which is how far back they look
	Count   int64  // the largest of their counts, which is how many of the newest units can matter
}

// NeedOf returns the need of a rule's limits. It is zero if none of them is a sliding window.
func NeedOf(r *headgate.Rule) Need {
	var need Need
	for i := range r.Limits() {
		if l := &r.Limits()[i]; l.Algorithm == headgate.SlidingWindow {
			need.Horizon, need.Count = max(need.Horizon, periodOf(l)), max(need.Count, l.Count)
		}
	}
	return need
}

// Span says for how long a log remembers units for a list of limits that was charged to it. A rule
// can have several lists for one key: by tariff, by method, by an override, or because two versions
// of the policy are in use at a time. If a list was charged at t, and its longest window is h long,
// it needs the units in the log until t + h, whichever other list is charged meanwhile.
//
// So at any time the log remembers as far back as the longest horizon of the spans that have not
// ended. It forgets older units for good. What it remembers depends only on what was charged and
// when, not on when a store has removed the bytes of forgotten entries.
//
// A span covers a charge if its horizon is at least as long as that of the list, and if it ends no
// earlier than the list needs the charge. If a span covers a charge, spans stay as they are.
// Otherwise the charge begins a new span, which lasts an eighth longer than needed, and replaces
// all spans whose horizon is not longer. So a key with one list of limits has one span, which is
// replaced once in an eighth of its length.
type Span struct {
	// Horizon is how far back the log remembers.
	Horizon Micros
	// Until is when the span ends.
	Until headgate.Instant
	// Count is the largest count of the windows of all lists that the span covers.
	Count int64
	// Short is how many charges since the last squeeze came from lists with a shorter horizon than
	// the log's; see squeeze.
	Short int64
}

// MaxSpans is the maximum number of spans of a log. A charge that would need one more extends the
// shortest span instead.
const MaxSpans = 4

const (
	// A span lasts longer than needed by 1/spanSlack of its horizon.
	spanSlack = 8
	// maxLogged is the largest number of units that a log holds within the horizon of a list.
	maxLogged = maxOrdinary
	// maxShort is the number of charges by lists with shorter horizons after which a log is
	// squeezed.
	maxShort = 1024
	// spanSlot is the upper part of a span's slot, which is that of a sliding window. The horizon
	// is the lower part.
	spanSlot = uint64(headgate.SlidingWindow+1) << 52
	// spanBits masks the bits of a slot that hold the horizon.
	spanBits = uint64(1)<<48 - 1
)

// Slot returns the slot under which a store keeps the span among the states of a key. It
// corresponds to the slot of a [headgate.Limit].
func (s Span) Slot() uint64 { return spanSlot | uint64(s.Horizon) }

// State returns the span in the form that a store keeps under its Slot: Stamp is Until, Used is
// Short, and Extra is Count.
func (s Span) State() State { return State{Stamp: s.Until, Used: s.Short, Extra: s.Count} }

// SpanOf is the inverse of Slot and State. It returns false if the slot is not that of a span.
func SpanOf(slot uint64, s State) (Span, bool) {
	if slot&^spanBits != spanSlot {
		return Span{}, false
	}
	return Span{Horizon: Micros(slot & spanBits), Until: s.Stamp, Count: s.Extra, Short: s.Used}, true
}

// Foreign returns spans, and adds one if a program that does not know spans has charged the log.
// Such a program moves only expires, the time until which the log is needed. So Foreign adds a span
// if expires is after the end of all spans and after newest, the time of the log's newest entry.
func Foreign(spans []Span, newest, expires headgate.Instant) []Span {
	for i := range spans {
		if spans[i].Until >= expires {
			return spans
		}
	}
	if expires <= newest {
		return spans
	}
	return append(spans, Span{Horizon: min(minus(expires, newest), Micros(spanBits)), Until: expires, Count: headgate.MaxLog})
}

// Until returns the end of the last span. From then on, the log remembers nothing.
func (g *Log) Until() headgate.Instant {
	until := headgate.Instant(0)
	for i := range g.spans {
		until = max(until, g.spans[i].Until)
	}
	return until
}

// horizon returns how far back the log remembers at the given time, or 0 if it remembers nothing.
func (g *Log) horizon(at headgate.Instant) Micros {
	longest := Micros(0)
	for i := range g.spans {
		if s := &g.spans[i]; s.Until > at {
			longest = max(longest, s.Horizon)
		}
	}
	return longest
}

// forgotten returns the latest time whose entries the log has forgotten at the time at, which must
// not be before its newest entry.
func (g *Log) forgotten(at headgate.Instant) headgate.Instant { return plus(at, -g.horizon(at)) }

// leaves returns when a unit admitted at t leaves the window of l: after a period, or when no span
// remembers it any more, whichever is earlier.
func (g *Log) leaves(t headgate.Instant, l *headgate.Limit) headgate.Instant {
	remembered := t
	for i := range g.spans {
		s := &g.spans[i]
		remembered = max(remembered, min(s.Until, plus(t, s.Horizon)))
	}
	return min(plus(t, periodOf(l)), remembered)
}

// Open prepares the log for a charge at now by a list with the given need. It extends the spans so
// that the log remembers the charge for as long as the list needs it, and removes forgotten
// entries. Stepped must be false for the log. [Log.Add] or [Log.Merge] must follow.
func (g *Log) Open(now headgate.Instant, need Need) {
	horizon := g.horizon(now)
	if need.Horizon > horizon {
		// From now on the log looks back further than before. What it has forgotten must not come
		// back.
		g.drop(g.after(plus(now, -horizon)))
	}
	s := g.cover(now, need)
	if need.Horizon < horizon {
		s.Short++
		if units := g.before(len(g.entries)) - g.before(g.after(plus(now, -horizon))); s.Short >= maxShort || units > 2*maxLogged {
			s.Short = 0
			g.squeeze(now, need.Horizon)
		}
	}
	g.trim(g.forgotten(now))
}

// cover returns the shortest span that covers a charge at now. If there is none, cover makes one.
func (g *Log) cover(now headgate.Instant, need Need) *Span {
	for i := len(g.spans) - 1; i >= 0; i-- { // the shortest first
		if s := &g.spans[i]; s.Horizon >= need.Horizon && s.Until >= plus(now, need.Horizon) {
			s.Count = max(s.Count, need.Count)
			return s
		}
	}
	own := Span{Horizon: need.Horizon, Until: plus(now, need.Horizon+need.Horizon/spanSlack), Count: need.Count}
	if g.spans == nil {
		g.spans = g.first[:0]
	}
	kept := g.spans[:0]
	for _, s := range g.spans {
		switch {
		case s.Until <= now: // it has ended
		case s.Horizon > need.Horizon:
			kept = append(kept, s)
		default: // own remembers more, and for longer
			own.Count, own.Short = max(own.Count, s.Count), max(own.Short, s.Short)
		}
	}
	if len(kept) < MaxSpans {
		g.spans = append(kept, own)
		return &g.spans[len(kept)]
	}
	g.spans = kept
	s := &kept[len(kept)-1]
	s.Until, s.Count, s.Short = max(s.Until, own.Until), max(s.Count, own.Count), max(s.Short, own.Short)
	return s
}

// squeeze bounds the size of a log that remembers much further back than the list that fills it
// needs. At 1000 units a second, a log with a horizon of a day would have 86 million entries.
// Beyond the list's own horizon, only the newest units matter, up to the largest count of all
// lists: a window that holds so many is full without the older ones. squeeze merges the older units
// into one entry, at the time of the newest of them. This changes no decision unless the older
// units matter again, because many newer units are given back or the limit is raised. Then they
// leave their windows late, never early.
func (g *Log) squeeze(now headgate.Instant, horizon Micros) {
	g.drop(g.live(g.forgotten(now)))
	n := len(g.entries)
	if n == 0 {
		return
	}
	count := int64(0)
	for _, s := range g.spans {
		if s.Until > now {
			count = max(count, s.Count)
		}
	}
	total := g.entries[n-1].Sum
	// first is the first entry after which there are too few units. Units of the same time stay
	// together.
	first := sort.Search(n, func(i int) bool { return g.entries[i].Sum > total-count })
	if first > 0 && first < n && g.entries[first-1].Time == g.entries[first].Time {
		first = g.after(g.entries[first].Time - 1)
	}
	if first = min(first, g.after(plus(now, -horizon))); first > 1 {
		base := g.base
		g.drop(first - 1)
		g.base = base
	}
	// No limit admits more than maxLogged units, so older ones are dropped.
	g.base = max(g.base, min(total-maxLogged, g.entries[0].Sum-1))
}
