package algorithm

import (
	"sort"

	"github.com/headgate/headgate"
)

// Need is what the sliding windows of one list of limits need of their log.
type Need struct {
	Horizon Micros // the longest of their periods: how far back they look
	Count   int64  // the largest of their counts: how many of the newest units can matter
}

// NeedOf is the need of a rule's list of limits. It is zero if there is no sliding
// window among them.
func NeedOf(r *headgate.Rule) Need {
	var need Need
	for i := range r.Limits() {
		if l := &r.Limits()[i]; l.Algorithm == headgate.SlidingWindow {
			need.Horizon, need.Count = max(need.Horizon, periodOf(l)), max(need.Count, l.Count)
		}
	}
	return need
}

// Span says for how long a log remembers for a list of limits that was charged to it.
// A rule can have several lists for one key: by tariff, by method, by an override, or
// because two versions of the policy are in use at a time. A list that charged at t and
// whose longest window is h long needs what is in the log until t + h, whichever other
// list charges meanwhile.
//
// So at any time the log remembers what is younger than the longest horizon of the spans
// that have not ended, and forgets the rest for good. That depends on what was charged
// and when, and never on when a store has removed the bytes of what is forgotten.
//
// A charge that a span covers changes none: one that is at least as long, and lasts at
// least as long as the charge is needed. Else the charge begins one that lasts for an
// eighth more than it needs, and replaces all that are no longer. A key with one list of
// limits so has one span, which changes once in an eighth of its length.
type Span struct {
	// Horizon is how far back the log remembers.
	Horizon Micros
	// Until is when the span ends.
	Until headgate.Instant
	// Count is the largest count of the windows of all lists that the span covers.
	Count uint32
	// Short is how many charges came since the log was last squeezed that came under
	// lists with a shorter horizon than the log's; see squeeze.
	Short uint32
}

// MaxSpans is how many spans a log has at most. A charge that would need one more makes
// the shortest last longer.
const MaxSpans = 4

const (
	// spanSlack is the part of its length that a span lasts longer than it needs to.
	spanSlack = 8
	// maxShort is how many charges under shorter lists come before a log is squeezed.
	maxShort = 1024
	// spanSlot begins the slot of a span; its horizon follows. It is the slot of a
	// sliding window.
	spanSlot = uint64(headgate.SlidingWindow+1) << 52
	// spanBits are those of a slot that hold the horizon.
	spanBits = uint64(1)<<48 - 1
)

// Slot names the span among the states of a key, for stores that keep it there: as the
// slot of a [headgate.Limit] names its state.
func (s Span) Slot() uint64 { return spanSlot | uint64(s.Horizon) }

// State is the span as a store keeps it under its Slot: Stamp is Until, Used is Short,
// and Extra is Count.
func (s Span) State() State { return State{Stamp: s.Until, Used: s.Short, Extra: s.Count} }

// SpanOf is the inverse of Slot and State. It reports false if the slot is not a span's.
func SpanOf(slot uint64, s State) (Span, bool) {
	if slot&^spanBits != spanSlot {
		return Span{}, false
	}
	return Span{Horizon: Micros(slot & spanBits), Until: s.Stamp, Count: s.Extra, Short: s.Used}, true
}

// Foreign returns spans and one more for what a program that knows no spans has charged
// to the log, if that has moved expires, when the log is no longer needed, beyond the end
// of all of them. newest is the time of the log's newest entry.
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

// Until is when the last span ends: from then on the log remembers nothing.
func (g *Log) Until() headgate.Instant {
	until := headgate.Instant(0)
	for i := range g.spans {
		until = max(until, g.spans[i].Until)
	}
	return until
}

// horizon is how far back the log remembers at a time: 0 if nothing.
func (g *Log) horizon(at headgate.Instant) Micros {
	longest := Micros(0)
	for i := range g.spans {
		if s := &g.spans[i]; s.Until > at {
			longest = max(longest, s.Horizon)
		}
	}
	return longest
}

// forgotten is the latest time of entries that the log has forgotten at a time, which
// must not be before its newest entry.
func (g *Log) forgotten(at headgate.Instant) headgate.Instant { return plus(at, -g.horizon(at)) }

// leaves is when a unit admitted at t is no longer inside the window of l: a period
// later, or when no span remembers it, if that is earlier.
func (g *Log) leaves(t headgate.Instant, l *headgate.Limit) headgate.Instant {
	remembered := t
	for i := range g.spans {
		s := &g.spans[i]
		remembered = max(remembered, min(s.Until, plus(t, s.Horizon)))
	}
	return min(plus(t, periodOf(l)), remembered)
}

// Open prepares a log that is not Stepped for a charge at now under a list of that need:
// it sees to it that the charge is remembered for as long as the list needs it, and
// removes what is forgotten. [Log.Add] or [Log.Merge] must follow.
func (g *Log) Open(now headgate.Instant, need Need) {
	horizon := g.horizon(now)
	if need.Horizon > horizon {
		// The log is about to look back further than it did. What it has forgotten
		// must not come back.
		g.drop(g.after(plus(now, -horizon)))
	}
	s := g.cover(now, need)
	if need.Horizon < horizon {
		s.Short++
		if units := g.before(len(g.entries)) - g.before(g.after(plus(now, -horizon))); s.Short >= maxShort || units > 2*headgate.MaxCount {
			s.Short = 0
			g.squeeze(now, need.Horizon)
		}
	}
	g.trim(g.forgotten(now))
}

// cover returns the shortest span that covers a charge at now, and makes one if there
// is none.
func (g *Log) cover(now headgate.Instant, need Need) *Span {
	for i := len(g.spans) - 1; i >= 0; i-- { // the shortest first
		if s := &g.spans[i]; s.Horizon >= need.Horizon && s.Until >= plus(now, need.Horizon) {
			s.Count = max(s.Count, uint32(need.Count))
			return s
		}
	}
	own := Span{Horizon: need.Horizon, Until: plus(now, need.Horizon+need.Horizon/spanSlack), Count: uint32(need.Count)}
	if g.spans == nil {
		g.spans = g.first[:0]
	}
	kept := g.spans[:0]
	for _, s := range g.spans {
		switch {
		case s.Until <= now: // it has ended
		case s.Horizon > need.Horizon:
			kept = append(kept, s)
		default: // own remembers more, for longer
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

// squeeze bounds a log that remembers further back than the list looks that fills it: a
// thousand units a second beside a window of a day would be 86 million entries. Of units
// beyond the list's own horizon only as many of the newest can matter as the largest
// count: when a window holds that many, it is full without the older ones. These become
// one entry at the time of the newest of them. No decision changes by that, unless so
// many newer units are given back, or the limit is raised so far, that the older ones
// matter again: then they leave their windows later than they would have, never earlier.
func (g *Log) squeeze(now headgate.Instant, horizon Micros) {
	g.drop(g.after(g.forgotten(now)))
	n := len(g.entries)
	if n == 0 {
		return
	}
	count := int64(0)
	for _, s := range g.spans {
		if s.Until > now {
			count = max(count, int64(s.Count))
		}
	}
	total := g.entries[n-1].Sum
	// The first entry that has too few units behind it. Units of one time stay together.
	first := sort.Search(n, func(i int) bool { return g.entries[i].Sum > total-count })
	if first > 0 && first < n && g.entries[first-1].Time == g.entries[first].Time {
		first = g.after(g.entries[first].Time - 1)
	}
	if first = min(first, g.after(plus(now, -horizon))); first > 1 {
		base := g.base
		g.drop(first - 1)
		g.base = base
	}
	// More units than any limit admits are of no use either.
	g.base = max(g.base, min(total-headgate.MaxCount, g.entries[0].Sum-1))
}
