package algorithm

import (
	"math"
	"time"

	"github.com/headgate/headgate"
)

// advanceFixed closes a window that has ended. If the clock has stepped back so far that the window
// begins more than a period after now, the count moves to the window that contains now.
func advanceFixed(l *headgate.Limit, s State, now headgate.Instant) State {
	if now >= s.Stamp {
		return State{}
	}
	if now < plus(s.Stamp, -2*periodOf(l)) {
		_, s.Stamp = Window(l, now)
	}
	return s
}

// Window returns the beginning and end of the window of a FixedWindow limit that contains now, so
// that start <= now < end. For AlignFirst, it is the window that a request at now would begin.
func Window(l *headgate.Limit, now headgate.Instant) (start, end headgate.Instant) {
	period := periodOf(l)
	switch l.Align {
	case headgate.AlignUTC:
		start = aligned(now, period)
		return start, plus(start, period)
	case headgate.AlignFirst:
		return now, plus(now, period)
	}
	loc := l.Location
	if loc == nil {
		loc = time.UTC
	}
	t := now.Time().In(loc)
	if l.Align == headgate.AlignMinute || l.Align == headgate.AlignHour {
		// When a zone changes its offset, even by a part of an hour, the hour of the change is cut
		// short, so that windows never overlap.
		_, offset := t.Zone()
		local := now + headgate.Instant(offset)*1e6
		start = now - (local - aligned(local, period))
		begin, stop := sameOffset(t)
		return max(start, headgate.Instant(begin*1e6)), min(plus(start, period), headgate.Instant(stop*1e6))
	}
	// If daylight saving time skips or repeats the hour in which a calendar unit begins, the unit
	// may contain instants whose date belongs to the unit before or after it.
	for n := -1; n <= 1; n++ {
		start, end = calendar(l.Align, t, n), calendar(l.Align, t, n+1)
		if start <= now && now < end {
			break
		}
	}
	return start, end
}

// WithoutZone returns the state of a limit whose own slot is empty. Programs that did not tell the time
// zones of calendar windows apart kept it in the slot of a limit in UTC. It is theirs if it does not end
// as a day in UTC does; otherwise the state is zero. Windows shorter than a day are not worth the
// search. at returns what the store keeps in a slot.
func WithoutZone(l *headgate.Limit, at func(slot uint64) State) State {
	const day = 24 * time.Hour / time.Microsecond
	if l.Align >= headgate.AlignDay {
		if s := at(l.Slot()>>48<<48 | uint64(l.Micros())); s.Stamp%headgate.Instant(day) != 0 {
			return s
		}
	}
	return State{}
}

// calendar returns the beginning of the calendar unit n units after the one that contains t.
func calendar(unit headgate.Alignment, t time.Time, n int) headgate.Instant {
	y, m, d := t.Date()
	switch unit {
	case headgate.AlignDay:
		d += n
	case headgate.AlignWeek:
		d += 7*n - (int(t.Weekday())+6)%7
	case headgate.AlignMonth:
		m, d = m+time.Month(n), 1
	default:
		y, m, d = y+n, time.January, 1
	}
	return midnight(y, m, d, t.Location())
}

// midnight returns the first instant of a date. If the zone skips that whole day, it returns the
// first instant of the next one. time.Date alone is not enough: if there are two midnights it
// chooses one of them, and if there is none it returns a time on either side of the gap.
func midnight(y int, m time.Month, d int, loc *time.Location) headgate.Instant {
	wall := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() // midnight if loc were UTC
	t := time.Date(y, m, d, 0, 0, 0, 0, loc)
	_, offset := t.Zone()
	first := wall - int64(offset)
	begin, end := sameOffset(t)
	_, before := time.Unix(begin-1, 0).In(loc).Zone()
	if earlier := wall - int64(before); earlier < begin {
		return headgate.Instant(earlier * 1e6) // also a midnight, before the clocks were set back
	}
	return headgate.Instant(min(max(first, begin), end) * 1e6)
}

// sameOffset returns the times between which a zone has the same offset as at t, in seconds since
// the Unix epoch. If the offset never changes before or after t, that bound is about the smallest
// or largest time that an Instant can hold.
func sameOffset(t time.Time) (begin, end int64) {
	const never = math.MaxInt64 / 1_000_000
	_, offset := t.Zone()
	b, e := t.ZoneBounds()
	begin, end = -never, never
	// Some bounds that ZoneBounds returns are only the ends of a year, where the offset does not
	// change.
	if _, o := b.Add(-1).Zone(); !b.IsZero() && o != offset {
		begin = b.Unix()
	}
	if _, o := e.Zone(); !e.IsZero() && o != offset {
		end = e.Unix()
	}
	return begin, end
}

// windowStart returns the beginning of the window that ends at end.
func windowStart(l *headgate.Limit, end headgate.Instant) headgate.Instant {
	if l.Align < headgate.AlignMinute {
		return plus(end, -periodOf(l))
	}
	start, _ := Window(l, end-1)
	return start
}

// aligned returns the beginning of the period that contains t. Periods are counted from the Unix
// epoch.
func aligned(t headgate.Instant, period Micros) headgate.Instant {
	r := t % headgate.Instant(period)
	if r < 0 {
		r += headgate.Instant(period)
	}
	return t - r
}
