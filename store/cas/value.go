package cas

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

const (
	// maxSlots is how many states a value can hold: those of a rule's limits, those of
	// the other lists of limits that the rule has or had, and the spans of its log.
	maxSlots = 8 * headgate.MaxLimits
	// maxLog is how many entries a log can have. A window holds MaxLog units, and charges
	// that need not fit can exceed it.
	maxLog = 2 * headgate.MaxLog
	// grace is how long a counter is kept after all of it has become free, in µs, so that it
	// is still there for a clock that steps back by less.
	grace = 60_000_000
	// entryRoom is an upper bound, in bytes, on what an entry adds to a value.
	entryRoom = 32
)

// page is the value of one rule and key while it is decided: the states of the rule's limits.
type page struct {
	slots []slot
	log   *algorithm.Log
	dirty bool // it must be written
	full  bool // its log must not grow
}

// slot is the state of one limit.
type slot struct {
	id      uint64
	expires headgate.Instant // when it is fully free
	state   algorithm.State
}

// at returns the state in a slot, which is zero if there is none.
func (p *page) at(id uint64) algorithm.State {
	for i := range p.slots {
		if p.slots[i].id == id {
			return p.slots[i].state
		}
	}
	return algorithm.State{}
}

// counter returns the counter of a limit.
func (p *page) counter(l *headgate.Limit) algorithm.Counter {
	return algorithm.LoadCounter(l, false, func(i int) algorithm.State {
		s := p.at(algorithm.BucketSlot(l, i))
		if i == 0 && s.IsZero() {
			return algorithm.WithoutZone(l, p.at)
		}
		return s
	})
}

// put stores the counter of a limit until it is fully free.
func (p *page) put(l *headgate.Limit, c algorithm.Counter, expires headgate.Instant) {
	slots, changed := c.Slots(l)
	for i := range slots {
		if changed&(1<<i) != 0 {
			p.set(algorithm.BucketSlot(l, i), slots[i], expires)
		}
	}
}

func (p *page) set(id uint64, s algorithm.State, expires headgate.Instant) {
	for i := range p.slots {
		if p.slots[i].id == id {
			p.slots[i].state, p.slots[i].expires, p.dirty = s, expires, true
			return
		}
	}
	if !s.IsZero() {
		p.slots, p.dirty = append(p.slots, slot{id, expires, s}), true
	}
}

// expires returns when the counter of a limit will be fully free, as it was last written.
func (p *page) expires(l *headgate.Limit) headgate.Instant {
	for i := range p.slots {
		if p.slots[i].id == l.Slot() {
			return p.slots[i].expires
		}
	}
	return 0
}

// lateness is how much later than its noted expiry a counter may become free, in µs, before
// the expiry is written anew. It is less than grace.
const lateness = 1_000_000

// keep puts off the expiry of a counter that was read: its limit may have been lowered since
// the counter was charged.
func (p *page) keep(l *headgate.Limit, expires headgate.Instant) {
	for i := range p.slots {
		if s := &p.slots[i]; p.of(s, l) && s.expires+lateness < expires {
			s.expires, p.dirty = expires, true
		}
	}
}

// of reports whether a slot belongs to the limit's counter.
func (p *page) of(s *slot, l *headgate.Limit) bool {
	if l.Algorithm > headgate.LeakyBucket && l.Algorithm != headgate.SlidingCounter {
		return s.id == l.Slot()
	}
	for i := range algorithm.BucketSlots {
		if s.id == algorithm.BucketSlot(l, i) {
			return true
		}
	}
	return false
}

// settle drops the states that have been free for longer than grace, and returns when the
// value may be forgotten. It reports false if no state is left.
func (p *page) settle(now headgate.Instant) (expires headgate.Instant, used bool) {
	p.slots = slices.DeleteFunc(p.slots, func(s slot) bool { return s.state.IsZero() || s.expires+grace <= now })
	if most := maxSlots - algorithm.MaxSpans; len(p.slots) > most { // more versions of a rule than anybody makes: the ones that are free first go
		slices.SortFunc(p.slots, func(a, b slot) int { return int(min(max(b.expires-a.expires, -1), 1)) })
		p.slots = p.slots[:most]
	}
	if p.log != nil && (p.log.Len() == 0 || p.log.Until()+grace <= now) {
		p.log = nil
	}
	for i := range p.slots {
		expires = max(expires, p.slots[i].expires)
	}
	if p.log != nil {
		expires = max(expires, p.log.Until())
	}
	return expires + grace, len(p.slots) > 0 || p.log != nil
}

// appendPage writes a page.
func appendPage(b []byte, p *page) []byte {
	var spans []algorithm.Span
	if p.log != nil {
		spans = p.log.Spans()
	}
	b = append(b, version, byte(len(p.slots)+len(spans)))
	for i := range p.slots {
		b = appendSlot(b, &p.slots[i])
	}
	// Older versions of this program keep slots that they do not know until these expire.
	for _, s := range spans {
		b = appendSlot(b, &slot{s.Slot(), s.Until, s.State()})
	}
	if p.log == nil {
		return binary.AppendUvarint(b, 0)
	}
	entries := p.log.Entries(nil)
	b = binary.AppendUvarint(b, uint64(len(entries)))
	b = binary.AppendVarint(b, int64(p.log.Until()))
	var before algorithm.Entry
	for i, e := range entries {
		if i == 0 {
			b = binary.AppendVarint(b, int64(e.Time))
		} else {
			b = binary.AppendUvarint(b, uint64(e.Time-before.Time))
		}
		b = binary.AppendUvarint(b, uint64(e.Sum-before.Sum))
		before = e
	}
	return b
}

func appendSlot(b []byte, s *slot) []byte {
	b = binary.BigEndian.AppendUint64(b, s.id)
	b = binary.AppendVarint(b, int64(s.expires))
	b = binary.AppendVarint(b, int64(s.state.Stamp))
	b = binary.AppendUvarint(b, uint64(s.state.Used))
	return binary.AppendUvarint(b, uint64(s.state.Extra))
}

// readPage is the inverse of appendPage. Nil is an empty page.
func readPage(b []byte) (*page, error) {
	p := new(page)
	if b == nil {
		return p, nil
	}
	r := codec{left: b}
	r.version()
	n := int(r.byte())
	if n > maxSlots {
		return nil, fmt.Errorf("it has %d states, and can have %d", n, maxSlots)
	}
	var spans []algorithm.Span
	for range n {
		s := slot{id: r.uint64(), expires: r.time()}
		s.state.Stamp = r.time()
		s.state.Used, s.state.Extra = int64(r.uint(1<<32-1)), int64(r.uint(1<<32-1))
		if span, ok := algorithm.SpanOf(s.id, s.state); !ok {
			p.slots = append(p.slots, s)
		} else if span.Horizon > 0 {
			spans = append(spans, span)
		}
	}
	if n = int(r.uint(maxLog)); n == 0 || r.err != nil {
		return p, r.end()
	}
	if n > len(r.left)/2 { // before there is memory for them
		return nil, fmt.Errorf("it has %d entries in %d bytes", n, len(r.left))
	}
	expires := r.time()
	entries := make([]algorithm.Entry, n, n+n/4+4)
	var e algorithm.Entry
	for i := range entries {
		if i == 0 {
			e.Time = r.time()
		} else if e.Time += headgate.Instant(r.uint(maxTime)); e.Time > maxTime {
			return nil, errors.New("a time in its log is out of bounds")
		}
		cost := int64(r.uint(headgate.MaxCount))
		if cost == 0 && r.err == nil {
			return nil, errors.New("an entry of its log has no units")
		}
		e.Sum += cost
		entries[i] = e
	}
	// An older version of this program kept the log until the newest entry had left the
	// longest window that it knew.
	spans = algorithm.Foreign(spans, e.Time, expires)
	p.log = algorithm.NewLog(entries, spans)
	return p, r.end()
}
