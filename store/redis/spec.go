package redis

import (
	"encoding/binary"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// The kinds of limits that the scripts tell apart.
const (
	kindBucket   = 1
	kindAligned  = 2
	kindFirst    = 3
	kindCalendar = 4
	kindCounter  = 5
	kindPenalty  = 6
)

const (
	stateBytes = 15 // stamp I7, used I4, extra I4
	factsBytes = 16 // used I4, age of the blocking unit I6, age of the newest I6
)

// appendSpec writes a rule's limits as the scripts read them:
//
//	slots B, windows B
//	for each limit but sliding windows: its name, 8 bytes
//	for each limit but sliding windows: kind B, capacity I4, num I4, den I7, period I7
//	for each sliding window: count I4, period I7
//
// Integers are big-endian. For a penalty num is its longest block in milliseconds
// and den its first in microseconds. Calendar windows cannot be computed in a script: for
// them num is the longest that a window lasts in seconds, and den and period are
// the begin and end of the window that contains near, the store's likely time.
func appendSpec(b []byte, r *headgate.Rule, near headgate.Instant) []byte {
	limits := r.Limits()
	windows := 0
	for i := range limits {
		if limits[i].Algorithm == headgate.SlidingWindow {
			windows++
		}
	}
	b = append(b, byte(len(limits)-windows), byte(windows))
	for i := range limits {
		if limits[i].Algorithm != headgate.SlidingWindow {
			b = binary.BigEndian.AppendUint64(b, limits[i].Slot())
		}
	}
	for i := range limits {
		if l := &limits[i]; l.Algorithm != headgate.SlidingWindow {
			b = appendSlot(b, l, near)
		}
	}
	for i := range limits {
		if l := &limits[i]; l.Algorithm == headgate.SlidingWindow {
			b = binary.BigEndian.AppendUint32(b, uint32(l.Count))
			b = appendUint56(b, l.Micros())
		}
	}
	return b
}

func appendSlot(b []byte, l *headgate.Limit, near headgate.Instant) []byte {
	num, den := l.Rate()
	period := l.Micros()
	var kind byte
	switch {
	case l.Algorithm == headgate.Penalty:
		// The longest block fits in 32 bits as milliseconds.
		kind = kindPenalty
		num, den = max(l.Block, l.MaxBlock).Milliseconds(), l.Block.Microseconds()
	case l.Algorithm == headgate.SlidingCounter:
		kind = kindCounter
	case l.Algorithm != headgate.FixedWindow:
		kind = kindBucket
	case l.Align == headgate.AlignUTC:
		kind = kindAligned
	case l.Align == headgate.AlignFirst:
		kind = kindFirst
	default:
		kind = kindCalendar
		num = period / 1e6
		begin, end := algorithm.Window(l, near)
		den, period = int64(begin), int64(end)
	}
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(l.Capacity()))
	b = binary.BigEndian.AppendUint32(b, uint32(num))
	b = appendUint56(b, den)
	return appendUint56(b, period)
}

// appendKey writes the name of a counter: the prefix, the rule's name, its tag in braces if it has
// one, a space, and the key. A rule's name contains neither spaces nor braces, so no two counters
// have the same name. Only the tag is in braces. In keys, braces are written as %7B and %7D, and %
// as %25, so that different keys stay different. Otherwise the owner of a key could choose its
// slot.
func appendKey(b []byte, prefix string, c *headgate.Check) []byte {
	b = append(b, prefix...)
	b = append(b, c.Rule.Name()...)
	if tag := c.Rule.Tag(); tag != "" {
		b = append(b, '{')
		b = append(b, tag...)
		b = append(b, '}')
	}
	return appendEscaped(append(b, ' '), c.Key)
}

// appendEscaped writes a key with {, } and % escaped. On a cluster, braces would choose the key's
// hash slot.
func appendEscaped(b []byte, key string) []byte {
	plain := 0 // the offset from which the key is not written yet
	for i := range len(key) {
		var written string
		switch key[i] {
		case '{':
			written = "%7B"
		case '}':
			written = "%7D"
		case '%':
			written = "%25"
		default:
			continue
		}
		b = append(b, key[plain:i]...)
		b = append(b, written...)
		plain = i + 1
	}
	return append(b, key[plain:]...)
}

func appendUint56(b []byte, v int64) []byte {
	return append(b, byte(v>>48), byte(v>>40), byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

func appendInt(b []byte, v int64) []byte { return strconv.AppendInt(b, v, 10) }

// readUint reads a big-endian integer of the given size from the front of s.
func readUint(s string, size int) int64 {
	v := int64(0)
	for i := range size {
		v = v<<8 | int64(s[i])
	}
	return v
}

// readState reads a counter's state from the front of s.
func readState(s string) algorithm.State {
	return algorithm.State{
		Stamp: headgate.Instant(readUint(s, 7)),
		Used:  uint32(readUint(s[7:], 4)),
		Extra: uint32(readUint(s[11:], 4)),
	}
}

// readFacts reads the facts about a sliding window from the front of a script's answer.
func readFacts(s string, now headgate.Instant) algorithm.WindowFacts {
	return algorithm.WindowFacts{
		Used:     readUint(s, 4),
		Blocking: now - headgate.Instant(readUint(s[4:], 6)),
		Newest:   now - headgate.Instant(readUint(s[10:], 6)),
	}
}
