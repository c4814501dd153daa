package spelling

import (
	"strings"
	"unicode/utf8"
)

// decoded is a segment without its escapes.
type decoded struct {
	text string
	at   []int // of each byte of the text, where in the path it comes from
}

// from is where in the path the byte of the text comes from, counted from 1.
func (d *decoded) from(i int) int { return d.at[i] + 1 }

// index is the byte of the text that comes from there.
func (d *decoded) index(at int) int {
	for i := range d.at {
		if d.at[i] >= at {
			return i
		}
	}
	return len(d.at)
}

// decode decodes the escapes of a segment, once. It refuses what no server should be
// sent, and what servers do not decode alike.
func decode(raw string, at int, forms Forms) (d decoded, err *Error) {
	text := make([]byte, 0, len(raw))
	d.at = make([]int, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		c, from := raw[i], at+i
		switch c {
		case '%':
			if escapeIn(raw[i:min(i+3, len(raw))]) != 0 {
				return d, &Error{Escape, from + 1}
			}
			c = unhex(raw[i+1])<<4 | unhex(raw[i+2])
			i += 2
		case '#':
			return d, &Error{Fragment, from + 1}
		case '\\':
			return d, &Error{Backslash, from + 1}
		case ' ':
			return d, &Error{Control, from + 1}
		}
		if c < ' ' || c == 0x7f {
			return d, &Error{Control, from + 1}
		}
		text, d.at = append(text, c), append(d.at, from)
	}
	d.text = string(text)
	if i := overlong(d.text); i >= 0 {
		return d, &Error{Overlong, d.from(i)}
	}
	if i := notUTF8(d.text); i >= 0 && forms&OtherBytes == 0 {
		return d, &Error{Bytes, d.from(i)}
	}
	return d, nil
}

// notUTF8 is where the first byte stands that is not UTF-8; -1 if all are.
func notUTF8(text string) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// escapeIn is where the first escape in a text begins; -1 if there is none.
func escapeIn(text string) int {
	for i := 0; i+2 < len(text); i++ {
		if text[i] == '%' && isHex(text[i+1]) && isHex(text[i+2]) {
			return i
		}
	}
	return -1
}

func isHex(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// overlong is where a text writes a character with more bytes than it needs, which some
// decoders take for that character; -1 if it does not. Old decoders know forms of five and
// six bytes, too.
func overlong(text string) int {
	for i := range len(text) - 1 {
		next := text[i+1]
		if next&0xc0 != 0x80 {
			continue
		}
		least := byte(0) // for the second byte of a character that needs as many
		switch text[i] {
		case 0xc0, 0xc1:
			return i
		case 0xe0:
			least = 0xa0
		case 0xf0:
			least = 0x90
		case 0xf8:
			least = 0x88
		case 0xfc:
			least = 0x84
		}
		if next < least {
			return i
		}
	}
	return -1
}
