package accesslog

import (
	"math"
	"strconv"
	"time"
	"unsafe"
)

// stamps parses times. It remembers the last one, because many lines of a busy log have the same
// second.
type stamps struct {
	last  [32]byte
	size  int
	value int64
}

// read returns a time in microseconds since 1970, and whether it is finer than whole
// seconds. It knows the common log format (17/May/2015:10:05:03 +0000), ISO 8601
// (2015-05-17T10:05:03.123Z, with a zone or without, which means UTC), and numbers:
// seconds, milliseconds, microseconds or nanoseconds since 1970.
func (s *stamps) read(b []byte) (micros int64, fine, ok bool) {
	if len(b) > 2 && b[0] == '[' && b[len(b)-1] == ']' {
		b = b[1 : len(b)-1] // the format of Apache's %t
	}
	if len(b) == s.size && string(b) == string(s.last[:s.size]) {
		return s.value, false, true
	}
	switch {
	case len(b) >= 20 && b[2] == '/' && b[6] == '/':
		micros, ok = common(b)
	case len(b) >= 19 && b[4] == '-' && b[7] == '-':
		micros, fine, ok = iso(b)
	default:
		micros, fine, ok = number(b)
	}
	if ok && !fine && len(b) <= len(s.last) {
		s.size, s.value = copy(s.last[:], b), micros
	}
	return micros, fine, ok
}

// common reads 17/May/2015:10:05:03 +0000.
func common(b []byte) (micros int64, ok bool) {
	if b[11] != ':' || b[14] != ':' || b[17] != ':' {
		return 0, false
	}
	month := monthOf(b[3:6])
	day, h, m, s, y := two(b[0:]), two(b[12:]), two(b[15:]), two(b[18:]), two(b[7:])*100+two(b[9:])
	if month == 0 || !valid(y, month, day, h, m, s) {
		return 0, false
	}
	zone := 0
	if len(b) > 20 {
		if zone, ok = offset(b[20:]); !ok {
			return 0, false
		}
	}
	return seconds(y, month, day, h, m, s, zone) * 1_000_000, true
}

// iso reads 2015-05-17T10:05:03.123456Z.
func iso(b []byte) (micros int64, fine, ok bool) {
	if b[10] != 'T' && b[10] != ' ' || b[13] != ':' || b[16] != ':' {
		return 0, false, false
	}
	y, month, day := two(b[0:])*100+two(b[2:]), two(b[5:]), two(b[8:])
	h, m, s := two(b[11:]), two(b[14:]), two(b[17:])
	if !valid(y, month, day, h, m, s) {
		return 0, false, false
	}
	rest, part := b[19:], int64(0)
	if len(rest) > 1 && (rest[0] == '.' || rest[0] == ',') {
		n := 1
		for unit := int64(100_000); n < len(rest) && rest[n] >= '0' && rest[n] <= '9'; n++ {
			part += int64(rest[n]-'0') * unit
			unit /= 10
		}
		rest, fine = rest[n:], n > 1
	}
	zone := 0
	if len(rest) > 0 {
		if zone, ok = offset(rest); !ok {
			return 0, false, false
		}
	}
	return seconds(y, month, day, h, m, s, zone)*1_000_000 + part, fine, true
}

// number reads seconds such as 1431857103.123, and whole numbers of smaller units, which are
// distinguished by their size.
func number(b []byte) (micros int64, fine, ok bool) {
	whole, n := int64(0), 0
	for ; n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
		if whole = whole*10 + int64(b[n]-'0'); n > 18 {
			return 0, false, false
		}
	}
	switch {
	case n == 0:
		return 0, false, false
	case n == len(b):
	case b[n] == '.' && n < 12:
		part, unit := int64(0), int64(100_000)
		for n++; n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
			part += int64(b[n]-'0') * unit
			unit /= 10
		}
		return whole*1_000_000 + part, true, n == len(b)
	default:
		// Some programs write large numbers like this: 1.431857103e+09.
		f, err := strconv.ParseFloat(unsafe.String(&b[0], len(b)), 64)
		if err != nil || !(f > 0 && f < 1e11) {
			return 0, false, false
		}
		return int64(math.Round(f * 1e6)), true, true
	}
	switch {
	case whole < 1e11:
		return whole * 1_000_000, false, true
	case whole < 1e14:
		return whole * 1000, true, true
	case whole < 1e17:
		return whole, true, true
	}
	return whole / 1000, true, true
}

// two returns a number of two digits. If it is not one, the result is far below zero.
func two(b []byte) int {
	if b[0]-'0' > 9 || b[1]-'0' > 9 {
		return -10_000
	}
	return int(b[0]-'0')*10 + int(b[1]-'0')
}

func valid(y, month, day, h, m, s int) bool {
	return y >= 1970 && month >= 1 && month <= 12 && day >= 1 && day <= 31 && h >= 0 && h < 24 && m >= 0 && m < 60 && s >= 0 && s <= 60
}

func monthOf(b []byte) int {
	const names = "JanFebMarAprMayJunJulAugSepOctNovDec"
	for i := 0; i < len(names); i += 3 {
		if b[0] == names[i] && b[1] == names[i+1] && b[2] == names[i+2] {
			return i/3 + 1
		}
	}
	return 0
}

// offset reads a zone such as " +0200", "+02:00" or "Z", in seconds.
func offset(b []byte) (int, bool) {
	if b[0] == ' ' {
		b = b[1:]
	}
	switch {
	case len(b) == 1 && (b[0] == 'Z' || b[0] == 'z'):
		return 0, true
	case len(b) == 6 && b[3] == ':':
		b = []byte{b[0], b[1], b[2], b[4], b[5]}
	case len(b) != 5:
		return 0, false
	}
	z := two(b[1:])*3600 + two(b[3:])*60
	switch {
	case z < 0 || z > 24*3600:
		return 0, false
	case b[0] == '-':
		return -z, true
	}
	return z, b[0] == '+'
}

// seconds returns the seconds since 1970. If the day is beyond the end of the month, it counts into
// the next month.
func seconds(y, month, day, h, m, s, zone int) int64 {
	return time.Date(y, time.Month(month), day, h, m, s, 0, time.UTC).Unix() - int64(zone)
}

// quantity reads a number with a fraction, in the given unit of microseconds. It returns -1 if it
// is not a number. Of several numbers, such as nginx's times of several upstreams, the first
// counts.
func quantity(b []byte, unit float64) int64 {
	whole, n := int64(0), 0
	for ; n < len(b) && b[n] >= '0' && b[n] <= '9' && n < 16; n++ {
		whole = whole*10 + int64(b[n]-'0')
	}
	if n == 0 {
		return -1
	}
	value := float64(whole)
	if n < len(b) && b[n] == '.' {
		scale := 0.1
		for n++; n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
			value += float64(b[n]-'0') * scale
			scale /= 10
		}
	}
	if n < len(b) && (b[n] == 'e' || b[n] == 'E') {
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
