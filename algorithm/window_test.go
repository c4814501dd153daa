package algorithm_test

import (
	"testing"
	"time"
	_ "time/tzdata" // zones must be known wherever the test runs

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// zones are ordinary ones, and those where clocks change at midnight, by half an
// hour, not on the hour, or by a whole day.
var zones = []string{
	"UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Amman", "America/Havana", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia",
	"America/New_York", "Asia/Kolkata", "Africa/Cairo", "Asia/Tehran", "Atlantic/Azores", "Africa/Casablanca",
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// TestWindowsOfACentury walks through a hundred years of calendar windows: each
// begins where the one before ends, holds its first and its last instant, and
// begins with its unit.
func TestWindowsOfACentury(t *testing.T) {
	from, to := time.Date(1971, 1, 1, 12, 0, 0, 0, time.UTC), time.Date(2071, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, name := range zones[:8] {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, name)
			for _, u := range []struct {
				align       headgate.Alignment
				count       int // in a hundred years
				least, most time.Duration
				unit        func(time.Time) int // differs between neighbours
			}{
				{headgate.AlignDay, 36525, 22 * time.Hour, 26 * time.Hour, func(t time.Time) int { return t.YearDay() }},
				{headgate.AlignWeek, 5218, 6 * 24 * time.Hour, 170 * time.Hour, func(t time.Time) int { _, w := t.ISOWeek(); return w }},
				{headgate.AlignMonth, 1200, 27 * 24 * time.Hour, 746 * time.Hour, func(t time.Time) int { return int(t.Month()) }},
				{headgate.AlignYear, 100, 364 * 24 * time.Hour, 8786 * time.Hour, func(t time.Time) int { return t.Year() }},
			} {
				l := one(t, headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Align: u.align, Location: loc})
				start, end := algorithm.Window(l, headgate.Instant(from.UnixMicro()))
				windows := 0
				for ; end <= headgate.Instant(to.UnixMicro()); windows++ {
					length := time.Duration(end-start) * time.Microsecond
					first, last := start.Time().In(loc), (end - 1).Time().In(loc)
					if length < u.least || length > u.most {
						t.Fatalf("%s of %v lasts %v, want %v to %v", u.align, first, length, u.least, u.most)
					}
					for _, instant := range []headgate.Instant{(start + end) / 2, end - 1} {
						if s, e := algorithm.Window(l, instant); s != start || e != end {
							t.Fatalf("%s of %v is %v to %v, that of %v before in it %v to %v", u.align, instant.Time().In(loc),
								s.Time().In(loc), e.Time().In(loc), first, first, end.Time().In(loc))
						}
					}
					// The instant before the first is of another unit. (Where a clock that is
					// set back repeats the end of a day after midnight, the last one may not be.)
					if before := (start - 1).Time().In(loc); u.unit(before) == u.unit(first) {
						t.Fatalf("%s begins at %v, but %v is in the same", u.align, first, before)
					}
					if u.unit(first) != u.unit(last) && name != "America/St_Johns" {
						t.Fatalf("%s begins at %v and ends after %v", u.align, first, last)
					}
					var next headgate.Instant
					if next, end = algorithm.Window(l, end); next != start+headgate.Instant(length.Microseconds()) {
						t.Fatalf("%s of %v ends at %v, the next begins at %v", u.align, first, start+headgate.Instant(length.Microseconds()), next)
					}
					start = next
				}
				if off := windows - u.count; off < -2 || off > 2 {
					t.Errorf("%d windows of a %s in a hundred years, want about %d", windows, u.align, u.count)
				}
			}
		})
	}
}

// TestWindowsOfAShift looks at the hours and minutes around each change of a
// zone's offset.
func TestWindowsOfAShift(t *testing.T) {
	for _, name := range zones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, name)
			at := time.Date(1975, 1, 1, 0, 0, 0, 0, time.UTC)
			for at.Year() < 2030 {
				_, until := at.In(loc).ZoneBounds()
				if until.IsZero() {
					break
				}
				for _, align := range []headgate.Alignment{headgate.AlignMinute, headgate.AlignHour} {
					l := one(t, headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Align: align, Location: loc})
					_, end := algorithm.Window(l, headgate.Instant(until.Add(-3*time.Hour).UnixMicro()))
					for end < headgate.Instant(until.Add(3*time.Hour).UnixMicro()) {
						start, next := algorithm.Window(l, end)
						if start != end || next <= start || next-start > headgate.Instant(l.Micros()) {
							t.Fatalf("%s windows near %v: one ends at %v, the next lasts from %v to %v", align, until.In(loc),
								end.Time().In(loc), start.Time().In(loc), next.Time().In(loc))
						}
						if s, e := algorithm.Window(l, next-1); s != start || e != next {
							t.Fatalf("%s windows near %v: that of the instant before %v is another one", align, until.In(loc), next.Time().In(loc))
						}
						end = next
					}
				}
				at = until
			}
		})
	}
}

// TestWindows has what the century leaves out.
func TestWindows(t *testing.T) {
	for _, c := range []struct {
		name            string
		limit           headgate.Limit
		now, start, end headgate.Instant
	}{
		{"aligned", headgate.Limit{Period: 10 * time.Second}, 25_000_000, 20_000_000, 30_000_000},
		{"at its begin", headgate.Limit{Period: 10 * time.Second}, 20_000_000, 20_000_000, 30_000_000},
		{"at its last instant", headgate.Limit{Period: 10 * time.Second}, 29_999_999, 20_000_000, 30_000_000},
		{"before 1970", headgate.Limit{Period: 10 * time.Second}, -1, -10_000_000, 0},
		{"of a microsecond", headgate.Limit{Period: time.Microsecond}, 7, 7, 8},
		{"from the first request", headgate.Limit{Period: 10 * time.Second, Align: headgate.AlignFirst}, 23, 23, 10_000_023},
		{"calendar, without a zone", headgate.Limit{Align: headgate.AlignDay}, 90_000_000_000, 86_400_000_000, 172_800_000_000},
		{"in a zone of odd seconds", headgate.Limit{Align: headgate.AlignMinute, Location: time.FixedZone("odd", 17)}, 50_000_000, 43_000_000, 103_000_000},
	} {
		c.limit.Algorithm, c.limit.Count = headgate.FixedWindow, 1
		if start, end := algorithm.Window(one(t, c.limit), c.now); start != c.start || end != c.end {
			t.Errorf("%s: %d is in %d to %d, want %d to %d", c.name, c.now, start, end, c.start, c.end)
		}
	}
}
