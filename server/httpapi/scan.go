package httpapi

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner parses one JSON text (RFC 8259). It knows only the types that the body of a request can
// have. It is stricter than encoding/json where leniency would give two different keys one counter:
// text that is not UTF-8 and lone surrogates are mistakes, and do not become U+FFFD.
//
// Its methods return false after a mistake in the syntax, which ends the parsing. The field wrong
// describes the mistake.
type scanner struct {
	src   string
	pos   int
	wrong string
}

// maxDepth is the maximum nesting of a value that is skipped. The known fields nest two deep at
// most.
const maxDepth = 32

// fail records the first mistake in the syntax, and returns false.
func (s *scanner) fail(format string, args ...any) bool {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, args...) + fmt.Sprintf(", at byte %d", s.pos)
	}
	return false
}

// found describes the character at the position, for messages.
func (s *scanner) found() string {
	if s.pos >= len(s.src) {
		return "the end of the body"
	}
	r, _ := utf8.DecodeRuneInString(s.src[s.pos:])
	return strconv.QuoteRune(r)
}

// peek skips white space and returns the next byte, or 0 at the end. A NUL byte in the text is not
// valid anywhere, so it causes an error like any other stray byte.
func (s *scanner) peek() byte {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// take skips c, which must come next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return s.fail("expected %q, found %s", c, s.found())
	}
	s.pos++
	return true
}

// next moves to the next element of an array, or member of an object, that ends with end. It
// reports whether there is one. It must be called before each element, including the first.
func (s *scanner) next(end byte, first bool) (more, ok bool) {
	switch c := s.peek(); {
	case c == end:
		s.pos++
		return false, true
	case first:
		return true, true
	case c == ',':
		s.pos++
		if s.peek() == end {
			return false, s.fail("expected something after the comma, found %s", s.found())
		}
		return true, true
	}
	return false, s.fail("expected ',' or %q, found %s", end, s.found())
}

// name reads the name of a member and the colon after it.
func (s *scanner) name() (name string, ok bool) {
	if s.peek() != '"' {
		return "", s.fail("expected a name in quotes, found %s", s.found())
	}
	if name, ok = s.text(); !ok {
		return "", false
	}
	return name, s.take(':')
}

// end requires that only white space is left.
func (s *scanner) end() bool {
	if s.peek(); s.pos < len(s.src) {
		return s.fail("expected nothing after the object, found %s", s.found())
	}
	return true
}

// text reads a string; the scanner is at its opening quote. Without escapes, the result shares the
// memory of src.
func (s *scanner) text() (string, bool) {
	start := s.pos + 1
	for i := start; i < len(s.src); i++ {
		switch c := s.src[i]; {
		case c == '"':
			s.pos = i + 1
			return s.src[start:i], true
		case c == '\\':
			return s.escaped(start, i)
		case c < ' ':
			s.pos = i
			return "", s.fail("a string holds the control character %q unescaped", c)
		}
	}
	s.pos = len(s.src)
	return "", s.fail("a string does not end")
}

// escaped reads the rest of a string that began at start and has its first
// backslash at i.
func (s *scanner) escaped(start, i int) (string, bool) {
	var b strings.Builder
	for {
		b.WriteString(s.src[start:i])
		s.pos = i
		r, ok := s.escape()
		if !ok {
			return "", false
		}
		b.WriteRune(r)
		for start, i = s.pos, s.pos; ; i++ {
			if i >= len(s.src) {
				s.pos = i
				return "", s.fail("a string does not end")
			}
			c := s.src[i]
			if c == '\\' {
				break
			}
			if c == '"' {
				b.WriteString(s.src[start:i])
				s.pos = i + 1
				return b.String(), true
			}
			if c < ' ' {
				s.pos = i
				return "", s.fail("a string holds the control character %q unescaped", c)
			}
		}
	}
}

// escape reads one escape sequence; the scanner is at its backslash.
func (s *scanner) escape() (rune, bool) {
	if s.pos+1 >= len(s.src) {
		return 0, s.fail("a string does not end")
	}
	c := s.src[s.pos+1]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		s.pos += 2
		return rune("\"\\/\b\f\n\r\t"[i]), true
	}
	if c != 'u' {
		return 0, s.fail(`\%c is not an escape`, c)
	}
	r, ok := s.hex4(s.pos)
	if !ok {
		return 0, false
	}
	if !utf16.IsSurrogate(r) {
		s.pos += 6
		return r, true
	}
	if strings.HasPrefix(s.src[min(s.pos+6, len(s.src)):], `\u`) {
		low, ok := s.hex4(s.pos + 6)
		if !ok {
			return 0, false
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			s.pos += 12
			return pair, true
		}
	}
	return 0, s.fail("%s is half of a surrogate pair and stands for no character", s.src[s.pos:s.pos+6])
}

// hex4 reads the four digits of the \u escape at position at.
func (s *scanner) hex4(at int) (rune, bool) {
	if at+6 <= len(s.src) {
		// ParseUint takes no signs and, in base 16, no underscores.
		if n, err := strconv.ParseUint(s.src[at+2:at+6], 16, 16); err == nil {
			return rune(n), true
		}
	}
	return 0, s.fail(`\u needs four hexadecimal digits`)
}

// A number is a JSON number as it was written. A whole number that is too large for an int64
// becomes the nearest int64, which is out of range for every field.
type number struct {
	value int64
	whole bool // written without a fraction or an exponent
}

// number reads a number; the scanner is at its first byte.
func (s *scanner) number() (number, bool) {
	start := s.pos
	if s.at('-') {
		s.pos++
	}
	digits := s.pos
	if !s.digits() {
		return number{}, false
	}
	if s.src[digits] == '0' && s.pos-digits > 1 {
		s.pos = digits
		return number{}, s.fail("a number begins with a zero")
	}
	n := number{whole: true}
	// On overflow, ParseInt returns the nearest int64, as intended.
	n.value, _ = strconv.ParseInt(s.src[start:s.pos], 10, 64)
	if s.at('.') {
		s.pos++
		n.whole = false
		if !s.digits() {
			return number{}, false
		}
	}
	if s.at('e') || s.at('E') {
		s.pos++
		n.whole = false
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if !s.digits() {
			return number{}, false
		}
	}
	return n, true
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.src) && s.src[s.pos] == c }

// digits skips one or more digits.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.src) && s.src[s.pos] >= '0' && s.src[s.pos] <= '9' {
		s.pos++
	}
	if s.pos == start {
		return s.fail("expected a digit, found %s", s.found())
	}
	return true
}

// skip skips a value of any kind and returns the kind, such as "a string". The value may nest up to
// maxDepth-depth levels.
func (s *scanner) skip(depth int) (kind string, ok bool) {
	switch c := s.peek(); c {
	case '"':
		_, ok = s.text()
		return "a string", ok
	case '{', '[':
		if depth >= maxDepth {
			return "", s.fail("values nest deeper than %d", maxDepth)
		}
		s.pos++
		kind, end := "an object", byte('}')
		if c == '[' {
			kind, end = "an array", ']'
		}
		for first := true; ; first = false {
			more, ok := s.next(end, first)
			if !ok || !more {
				return kind, ok
			}
			if c == '{' {
				if _, ok := s.name(); !ok {
					return "", false
				}
			}
			if _, ok := s.skip(depth + 1); !ok {
				return "", false
			}
		}
	case 't':
		return s.word("true", "a boolean")
	case 'f':
		return s.word("false", "a boolean")
	case 'n':
		return s.word("null", "null")
	default:
		if c != '-' && (c < '0' || c > '9') {
			return "", s.fail("expected a value, found %s", s.found())
		}
		_, ok = s.number()
		return "a number", ok
	}
}

func (s *scanner) word(word, kind string) (string, bool) {
	if !strings.HasPrefix(s.src[s.pos:], word) {
		return "", s.fail("expected a value, found %s", s.found())
	}
	s.pos += len(word)
	return kind, true
}
