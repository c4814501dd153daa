package resp

import (
	"strconv"
	"unicode/utf8"
)

// protocol is the version of RESP that a connection uses. RESP2 has no maps and no booleans: a map
// is a flat array of names and values, true is 1, and false is 0.
type protocol uint8

const (
	resp2 protocol = 2
	resp3 protocol = 3
)

func appendSimple(b []byte, text string) []byte {
	return append(append(append(b, '+'), text...), '\r', '\n')
}

func appendInt(b []byte, n int64) []byte { return appendHead(b, ':', n) }

func appendBulk(b []byte, s string) []byte {
	return append(append(appendHead(b, '$', int64(len(s))), s...), '\r', '\n')
}

func appendArray(b []byte, length int) []byte { return appendHead(b, '*', int64(length)) }

func appendHead(b []byte, kind byte, n int64) []byte {
	return append(strconv.AppendInt(append(b, kind), n, 10), '\r', '\n')
}

// appendMap begins a map. The length is the number of its name and value pairs.
func (p protocol) appendMap(b []byte, length int) []byte {
	if p == resp3 {
		return appendHead(b, '%', int64(length))
	}
	return appendArray(b, 2*length)
}

func (p protocol) appendBool(b []byte, v bool) []byte {
	switch {
	case p == resp3 && v:
		return append(b, "#t\r\n"...)
	case p == resp3:
		return append(b, "#f\r\n"...)
	case v:
		return append(b, ":1\r\n"...)
	}
	return append(b, ":0\r\n"...)
}

func (p protocol) appendNull(b []byte) []byte {
	if p == resp3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "$-1\r\n"...)
}

// maxError is the maximum length of an error's text, in bytes.
const maxError = 1024

// appendError writes an error as one line: it replaces control characters by blanks.
func appendError(b []byte, prefix, text string) []byte {
	b = append(append(append(b, '-'), prefix...), ' ')
	from := len(b)
	for _, r := range text {
		if len(b)-from > maxError {
			b = append(b, "..."...)
			break
		}
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		b = utf8.AppendRune(b, r)
	}
	return append(b, '\r', '\n')
}
