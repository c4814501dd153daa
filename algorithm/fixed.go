package algorithm

import (
	"time"

	"github.com/headgate/headgate"
)

// advanceFixed closes a window that has ended. After a long step back the count
// moves into the window that the clock is in now.
func advanceFixed(l *headgate.Limit, s State, now int64) State {
	if now >= s.Stamp {
		return State{}
	}
	if now < s.Stamp-2*l.Micros() {
		_, s.Stamp = Window(l, now)
	}
	return s
}

// Window returns where the window of a FixedWindow limit that contains now begins
// and ends, in microseconds: start <= now < end. For AlignFirst it is the window
// that a request at now would begin.
func Window(l *headgate.Limit, now int64) (start, end int64) {
	period := l.Micros()
	switch l.Align {
	case headgate.AlignUTC:
		start = now - mod(now, period)
		return start, start + period
	case headgate.AlignFirst:
		return now, now + period
	}
	loc := l.Location
	if loc == nil {
		loc = time.UTC
	}
	t := time.UnixMicro(now).In(loc)
	if l.Align == headgate.AlignMinute || l.Align == headgate.AlignHour {
		// Zones shift by whole minutes, nearly always by whole hours: within
		// such a unit the offset of its instant is the one that counts.
		_, offset := t.Zone()
		local := now + int64(offset)*1e6
		start = now - mod(local, period)
		return start, start + period
	}
	// A midnight that daylight saving time skips is normalised by time.Date to
	// before or after the gap, so the neighbours are asked as well.
	for n := -1; n <= 1; n++ {
		start, end = calendar(l.Align, t, n), calendar(l.Align, t, n+1)
		if start <= now && now < end {
			break
		}
	}
	return start, end
}

// calendar is when the calendar unit that is n after the one of t begins.
func calendar(unit headgate.Alignment, t time.Time, n int) int64 {
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
	return time.Date(y, m, d, 0, 0, 0, 0, t.Location()).UnixMicro()
}

// windowStart is where the window that ends at end began.
func windowStart(l *headgate.Limit, end int64) int64 {
	if l.Align < headgate.AlignMinute {
		return end - l.Micros()
	}
	start, _ := Window(l, end-1)
	return start
}

// mod is the remainder of a division that rounds towards minus infinity.
func mod(a, m int64) int64 {
	r := a % m
	if r < 0 {
		r += m
	}
	return r
}
