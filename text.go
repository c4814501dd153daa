package headgate

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// nameOf returns the name of constant i, or what it is and its number if there is no such constant.
func nameOf(names []string, what string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", what, i)
}

// units are the period's units, longest first, as String writes them.
var units = []struct {
	short  string
	length time.Duration
	names  []string
}{
	{"d", 24 * time.Hour, []string{"day", "days"}},
	{"h", time.Hour, []string{"hour", "hours"}},
	{"m", time.Minute, []string{"min", "minute", "minutes"}},
	{"s", time.Second, []string{"sec", "second", "seconds"}},
	{"ms", time.Millisecond, []string{"millisecond", "milliseconds"}},
	{"us", time.Microsecond, []string{"µs", "microsecond", "microseconds"}},
	{"w", 7 * 24 * time.Hour, []string{"week", "weeks"}},
}

// String writes the limit as [ParseLimit] reads it: "20 per 1m",
// "50 per 1s burst 200", "1000 per calendar month in Europe/Berlin",
// "100 per 1m from first request". The algorithm is not part of it. A penalty is
// "5 denials per 1m block 1m up to 1h".
func (l *Limit) String() string {
	if l == nil {
		return "none"
	}
	b := make([]byte, 0, 32)
	b = strconv.AppendInt(b, l.Count, 10)
	if l.Algorithm == Penalty {
		b = appendPeriod(append(b, " denials per "...), l.Period)
		b = appendPeriod(append(b, " block "...), l.Block)
		if l.MaxBlock > l.Block {
			b = appendPeriod(append(b, " up to "...), l.MaxBlock)
		}
		return string(b)
	}
	b = append(b, " per "...)
	if l.Align >= AlignMinute {
		b = append(append(b, "calendar "...), l.Align.String()...)
		if l.Location != nil && l.Location != time.UTC {
			b = append(append(b, " in "...), l.Location.String()...)
		}
	} else {
		b = appendPeriod(b, l.Period)
	}
	if l.Burst != 0 && l.Burst != l.Count {
		b = strconv.AppendInt(append(b, " burst "...), l.Burst, 10)
	}
	if l.Align == AlignFirst {
		b = append(b, " from first request"...)
	}
	return string(b)
}

// appendPeriod writes d as a whole number of the longest unit that divides it.
func appendPeriod(b []byte, d time.Duration) []byte {
	for _, u := range units[:len(units)-1] {
		if d != 0 && d%u.length == 0 {
			return append(strconv.AppendInt(b, int64(d/u.length), 10), u.short...)
		}
	}
	return append(b, d.String()...)
}

// FormatPeriod writes a period the way limits do: "1m", "90s", "1d".
func FormatPeriod(d time.Duration) string { return string(appendPeriod(nil, d)) }

// ParsePeriod reads "60s", "1m", "1 day", "10 minutes", or a unit alone
// ("minute"). Units are us, ms, s, m, h, d and w, and their English names. A
// month or a year has no fixed length: see [ParseLimit].
func ParsePeriod(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	digits := 0
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	n := int64(1)
	if digits > 0 {
		var err error
		if n, err = strconv.ParseInt(s[:digits], 10, 64); err != nil {
			return 0, Invalid("", "period", "period %q: the number is too large", s)
		}
	}
	unit, ok := unitLength(strings.TrimSpace(s[digits:]))
	if !ok {
		return 0, Invalid("", "period", "period %q: write a whole number and a unit, such as 500ms, 60s, 5m, 1h, 1d or 1w", s)
	}
	if n > int64(MaxPeriod/unit) {
		return 0, Invalid("", "period", "period %q is longer than %d days", s, int64(MaxPeriod/(24*time.Hour)))
	}
	return time.Duration(n) * unit, nil
}

func unitLength(name string) (time.Duration, bool) {
	for _, u := range units {
		if name == u.short {
			return u.length, true
		}
		for _, n := range u.names {
			if name == n {
				return u.length, true
			}
		}
	}
	return 0, false
}

// ParseLimit reads the text form of a limit:
//
//	COUNT per PERIOD [burst BURST] [from first request]
//	COUNT per [calendar] UNIT [in TIME ZONE]
//	COUNT denials per PERIOD block TIME [up to TIME]
//
// PERIOD is as in [ParsePeriod]. UNIT is minute, hour, day, week, month or year;
// month and year are calendar units whether the word is there or not. Calendar
// and "from first request" limits are FixedWindow, denials are counted by Penalty,
// and the others get algorithm a.
// ParseLimit reads the form only: [NewRule] checks the numbers.
func ParseLimit(a Algorithm, s string) (Limit, error) {
	l, err := parseLimit(a, s)
	if err != nil {
		return Limit{}, hinted(a, s, err)
	}
	return l, nil
}

// parseLimit is ParseLimit without hints.
func parseLimit(a Algorithm, s string) (Limit, error) {
	l := Limit{Algorithm: a}
	fail := func(format string, args ...any) (Limit, error) {
		return Limit{}, Invalid(fmt.Sprintf("limit %q", s), "", format, args...)
	}
	words := strings.Fields(s)
	if len(words) > 2 && words[1] == "denials" {
		return parsePenalty(words, fail)
	}
	if len(words) < 3 || words[1] != "per" {
		return fail(`write it as "20 per 60s", "50 per 1s burst 200" or "1000 per calendar month"`)
	}
	var err error
	if l.Count, err = parseCount(words[0]); err != nil {
		return fail("count %q is not a whole number from 1 to %d", words[0], MaxCount)
	}
	period, rest := splitPeriod(words[2:])
	if unit, calendar := calendarUnit(period); calendar {
		if unit < AlignMinute {
			return fail("%q is not a calendar unit: minute, hour, day, week, month or year", strings.Join(period, " "))
		}
		l.Align, l.Algorithm = unit, FixedWindow
	} else if l.Period, err = ParsePeriod(strings.Join(period, " ")); err != nil {
		return Limit{}, fmt.Errorf("%w (in limit %q)", err, s)
	}
	for len(rest) > 0 {
		switch {
		case rest[0] == "burst" && len(rest) > 1 && l.Burst == 0:
			if l.Burst, err = parseCount(rest[1]); err != nil || l.Burst == 0 {
				return fail("burst %q is not a whole number from 1 to %d", rest[1], MaxCount)
			}
			rest = rest[2:]
		case rest[0] == "in" && len(rest) > 1 && l.Location == nil:
			if l.Location, err = LoadLocation(rest[1]); err != nil {
				return Limit{}, fmt.Errorf("%w (in limit %q)", err, s)
			}
			rest = rest[2:]
		case len(rest) > 2 && rest[0] == "from" && rest[1] == "first" && rest[2] == "request" && l.Align == AlignUTC:
			l.Align, l.Algorithm = AlignFirst, FixedWindow
			rest = rest[3:]
		default:
			return fail("%q is not understood", strings.Join(rest, " "))
		}
	}
	return l, nil
}

// parsePenalty reads the form of a penalty.
func parsePenalty(words []string, fail func(string, ...any) (Limit, error)) (Limit, error) {
	const form = `write it as "5 denials per 1m block 1m up to 1h"`
	l := Limit{Algorithm: Penalty}
	var err error
	if l.Count, err = parseCount(words[0]); err != nil {
		return fail("count %q is not a whole number from 1 to %d", words[0], MaxPermits)
	}
	for rest := words[2:]; len(rest) > 0; {
		var to *time.Duration
		switch {
		case rest[0] == "per" && l.Period == 0:
			to, rest = &l.Period, rest[1:]
		case rest[0] == "block" && l.Period != 0 && l.Block == 0:
			to, rest = &l.Block, rest[1:]
		case rest[0] == "up" && len(rest) > 1 && rest[1] == "to" && l.Block != 0 && l.MaxBlock == 0:
			to, rest = &l.MaxBlock, rest[2:]
		}
		if to == nil || len(rest) == 0 {
			return fail(form)
		}
		var period []string
		period, rest = splitPeriod(rest)
		if *to, err = ParsePeriod(strings.Join(period, " ")); err != nil || *to == 0 {
			return fail("%q is not a time, such as 500ms, 60s, 5m, 1h or 1d", strings.Join(period, " "))
		}
	}
	if l.Block == 0 {
		return fail(form)
	}
	return l, nil
}

// LoadLocation is time.LoadLocation for names a person wrote: it refuses "" and
// "Local", which mean something else on every machine.
func LoadLocation(name string) (*time.Location, error) {
	if name == "" || name == "Local" {
		return nil, Invalid("", "location", "time zone %q differs from machine to machine; name one, such as UTC or Europe/Berlin", name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, Invalid("", "location", "time zone %q is not known here", name)
	}
	return loc, nil
}

// parseCount reads a whole number; underscores may group its digits.
func parseCount(s string) (int64, error) {
	if !strings.Contains(s, "__") && !strings.HasPrefix(s, "_") && !strings.HasSuffix(s, "_") {
		s = strings.ReplaceAll(s, "_", "")
	}
	n, err := strconv.ParseUint(s, 10, 62)
	return int64(n), err
}

// splitPeriod cuts words after the period: one word, or two where a number and
// its unit, or "calendar" and its unit, stand apart.
func splitPeriod(words []string) (period, rest []string) {
	n := 1
	if _, err := strconv.ParseUint(words[0], 10, 64); (err == nil || words[0] == "calendar") && len(words) > 1 {
		n = 2
	}
	return words[:n], words[n:]
}

// calendarUnit reports whether the period is a calendar unit, and which: below
// AlignMinute if the word "calendar" or a number goes with something that is not
// one.
func calendarUnit(period []string) (Alignment, bool) {
	unit := period[len(period)-1]
	explicit := period[0] == "calendar"
	for a := AlignMinute; a < alignments; a++ {
		if unit != a.String() {
			continue
		}
		if explicit || a >= AlignMonth && (len(period) == 1 || period[0] == "1") {
			return a, true
		}
	}
	return AlignUTC, explicit
}
