package accesslog

import (
	"bytes"
	"math"
	"strconv"
	"time"
	"unsafe"
)

// stamps parses times. It remembers the last day, because package time takes longer for it than for
// the rest.
type stamps struct {
	text []byte // the date and the zone
	day  int64  // when it began
}

// read returns a time in microseconds since 1970, and whether it is finer than whole
// seconds. It knows the common log format (17/May/2015:10:05:03 +0000), ISO 8601
// (2015-05-17T10:05:03.123Z, with a zone or without, which means UTC), and numbers:
// seconds, milliseconds, microseconds or nanoseconds since 1970.
func (s *stamps) read(b []byte) (micros int64, fine, ok bool) {
	if len(b) > 2 && b[0] == '[' && b[len(b)-1] == ']' {
		b = b[1 : len(b)-1] // the format of Apache's %t
	}
	switch {
	case len(b) >= 20 && b[2] == '/' && b[6] == '/' && b[11] == ':':
		return s.within(b[:11], b[12:], "02/Jan/2006")
	case len(b) >= 19 && b[4] == '-' && b[7] == '-' && (b[10] == 'T' || b[10] == ' '):
		return s.within(b[:10], b[11:], time.DateOnly)
	}
	return number(b)
}

// within reads a time such as 10:05:03.25+02:00 of a day.
func (s *stamps) within(date, clock []byte, layout string) (micros int64, fine, ok bool) {
	h, m, sec, zone := two(clock), two(clock[3:]), two(clock[6:]), clock[8:]
	if clock[2] != ':' || clock[5] != ':' || h < 0 || h > 23 || m < 0 || m > 59 || sec < 0 || sec > 60 {
		return 0, false, false
	}
	if len(zone) > 1 && (zone[0] == '.' || zone[0] == ',') {
		n := 1
		for unit := int64(100_000); n < len(zone) && zone[n] >= '0' && zone[n] <= '9'; n++ {
			micros += int64(zone[n]-'0') * unit
			unit /= 10
		}
		zone, fine = zone[n:], n > 1
	}
	if n := len(date); len(s.text) != n+len(zone) || !bytes.Equal(s.text[:n], date) || !bytes.Equal(s.text[n:], zone) {
		at, err := time.Time{}, error(nil)
		text := string(date) + string(bytes.ToUpper(bytes.TrimPrefix(zone, []byte{' '})))
		for _, form := range []string{"", "Z07:00", "-0700"} {
			if at, err = time.ParseInLocation(layout+form, text, time.UTC); err == nil {
				break
			}
		}
		if err != nil || at.Year() < 1970 {
			return 0, false, false
		}
		s.text, s.day = append(append(s.text[:0], date...), zone...), at.UnixMicro()
	}
	return s.day + int64(h*3600+m*60+sec)*second + micros, fine, true
}

// number reads seconds such as 1431857103.123, and whole numbers of smaller units, which are
// distinguished by their size.
func number(b []byte) (micros int64, fine, ok bool) {
	whole, part, n := decimal(b)
	switch {
	case n == 0 || whole < 0:
		return 0, false, false
	case n < len(b):
		// Some programs write large numbers like this: 1.431857103e+09.
		f, err := strconv.ParseFloat(unsafe.String(&b[0], len(b)), 64)
		if err != nil || !(f > 0 && f < 1e11) {
			return 0, false, false
		}
		return int64(math.Round(f * 1e6)), true, true
	case bytes.IndexByte(b, '.') >= 0:
		return whole*second + int64(part*1e6+0.5), true, whole < 1e11
	case whole < 1e11:
		return whole * second, false, true
	case whole < 1e14:
		return whole * 1000, true, true
	case whole < 1e17:
		return whole, true, true
	}
	return whole / 1000, true, true
}

// decimal reads a number such as 12.25: what is before and behind its point, and how many bytes
// there are. The whole part is -1 if it has more than 18 digits.
func decimal(b []byte) (whole int64, part float64, n int) {
	for ; n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
		if whole = whole*10 + int64(b[n]-'0'); n >= 18 {
			return -1, 0, n
		}
	}
	if n > 0 && n < len(b) && b[n] == '.' {
		scale := 0.1
		for n++; n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
			part += float64(b[n]-'0') * scale
			scale /= 10
		}
	}
	return whole, part, n
}

// two returns a number of two digits. If it is not one, the result is far below zero.
func two(b []byte) int {
	if b[0]-'0' > 9 || b[1]-'0' > 9 {
		return -10_000
	}
	return int(b[0]-'0')*10 + int(b[1]-'0')
}

// quantity reads a number with a fraction, in the given unit of microseconds. It returns -1 if it
// is not a number. Of several numbers, such as nginx's times of several upstreams, the first
// counts.
func quantity(b []byte, unit float64) int64 {
	whole, part, n := decimal(b)
	if n == 0 || whole < 0 {
		return -1
	}
	value := float64(whole) + part
	if n < len(b) && b[n]|0x20 == 'e' {
		f, err := strconv.ParseFloat(string(b), 64)
		if err != nil || f < 0 {
			return -1
		}
		value = f
	}
	const longest = 366 * 24 * 3600 * 1e6
	if value *= unit; value > longest {
		return -1
	}
	return int64(math.Round(value))
}
