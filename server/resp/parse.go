package resp

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// The bounds of a command.
const (
	// MaxCommand is the maximum size of a command, in bytes. 64 checks with keys of usual length need
	// about a tenth of it.
	MaxCommand = 64 << 10
	// MaxArguments is the maximum number of a command's arguments, including its name. It is enough
	// for 64 checks.
	MaxArguments = 1024
)

// The same bounds for clients that have not sent the token yet, and do not need more to send it.
const (
	strangerCommand   = 4 << 10
	strangerArguments = 16
)

// protocolError is a violation of the protocol, after which it is not known where the next command
// begins.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

func malformed(format string, args ...any) error {
	return protocolError(fmt.Sprintf(format, args...))
}

// span is the range of an argument in the parsed bytes.
type span struct{ from, to int }

// parser finds the commands in the data that has arrived.
type parser struct {
	// maxBytes and maxArguments are the bounds of a command.
	maxBytes, maxArguments int

	// args are the arguments of the command that was found, if it is an array of strings. words are
	// the arguments of an inline command, which is a line of text.
	args  []span
	words []string
	// need is the number of bytes from which parsing again makes sense. It is set if no complete
	// command was found.
	need int
}

// parse finds the command at the start of b, and returns its size in bytes, or 0 if it is not
// complete yet. A command without any arguments is valid, and is ignored.
func (p *parser) parse(b []byte) (size int, err error) {
	p.args, p.words, p.need = p.args[:0], nil, len(b)+1
	if len(b) == 0 {
		return 0, nil
	}
	if size, err = p.find(b); size == 0 && err == nil && len(b) >= p.maxBytes {
		return 0, p.tooLong()
	}
	return size, err
}

func (p *parser) tooLong() error {
	return malformed("a command has more than %d bytes", p.maxBytes)
}

// find is parse without the check of the length of b.
func (p *parser) find(b []byte) (size int, err error) {
	switch b[0] {
	case '*':
	case handshake:
		return 0, malformed("this is TLS, which the server was not started with")
	default:
		return p.parseLine(b)
	}
	n, pos, err := number(b, 1, p.maxArguments, "an array's length", "the arguments of a command")
	if pos == 0 {
		return 0, err
	}
	for range n {
		if pos == len(b) {
			return 0, nil
		}
		if b[pos] != '$' {
			return 0, malformed("expected '$', found %s: a command is an array of strings", strconv.QuoteRune(rune(b[pos])))
		}
		length, from, err := number(b, pos+1, p.maxBytes, "a string's length", "the bytes of a command")
		if from == 0 {
			return 0, err
		}
		end := from + length
		switch {
		case end+2 > p.maxBytes:
			return 0, p.tooLong()
		case end+2 > len(b):
			p.need = end + 2
			return 0, nil
		}
		if b[end] != '\r' || b[end+1] != '\n' {
			return 0, malformed("there is no end of line after a string of %d bytes", length)
		}
		p.args = append(p.args, span{from, end})
		pos = end + 2
	}
	return pos, nil
}

// handshake is the first byte of a TLS connection.
const handshake = 0x16

// maxDigits is the maximum number of digits of a length.
const maxDigits = 10

// number parses the decimal number at b[pos:] and the end of its line, and returns where the next
// line begins, or 0 if the line is incomplete or wrong. Errors name the number by what, and its
// bound most by bounded.
func number(b []byte, pos, most int, what, bounded string) (n, next int, err error) {
	i := pos
	for ; i < len(b); i++ {
		digit := b[i] - '0'
		if digit > 9 {
			break
		}
		if n = n*10 + int(digit); n > most || i-pos >= maxDigits {
			return 0, 0, malformed("%s are bounded to %d", bounded, most)
		}
	}
	switch {
	case i == len(b):
		return 0, 0, nil
	case i == pos || b[i] != '\r':
		return 0, 0, malformed("%s has %s where a digit was expected", what, strconv.QuoteRune(rune(b[i])))
	case i+1 == len(b):
		return 0, 0, nil
	case b[i+1] != '\n':
		return 0, 0, malformed("the line of %s does not end with CR LF", what)
	}
	return n, i + 2, nil
}

// maxLine is the maximum size of an inline command, in bytes.
const maxLine = 4 << 10

// parseLine finds an inline command, which people type without a client.
func (p *parser) parseLine(b []byte) (size int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxLine)], '\n')
	if end < 0 {
		if len(b) >= maxLine {
			return 0, malformed("a command in one line has more than %d bytes", maxLine)
		}
		return 0, nil
	}
	words, ok := split(string(bytes.TrimSuffix(b[:end], []byte{'\r'})))
	switch {
	case !ok:
		return 0, malformed("quotes in a command in one line are not balanced")
	case len(words) > p.maxArguments:
		return 0, malformed("the arguments of a command are bounded to %d", p.maxArguments)
	case ofHTTP(words):
		return 0, malformed("this is a request of HTTP, which is served at another address")
	}
	p.words = words
	return end + 1, nil
}

// ofHTTP reports whether a line is the start of an HTTP request or a Host header. A web page can
// make a browser send an HTTP request anywhere, with a body of the page's choice, and that body
// must not be executed as commands.
func ofHTTP(words []string) bool {
	return len(words) > 0 && (strings.HasPrefix(words[len(words)-1], "HTTP/") || equal(words[0], "Host:"))
}

// split splits a line into words at blanks, or returns false if quotes are not balanced. Words may
// be quoted: single quotes know only the escape \' and double quotes know \n, \r, \t, \xHH, \\ and
// \".
func split(line string) (words []string, ok bool) {
	for i := 0; ; {
		for i < len(line) && blank(line[i]) {
			i++
		}
		if i == len(line) {
			return words, true
		}
		word := make([]byte, 0, 32)
		for i < len(line) && !blank(line[i]) {
			if line[i] != '"' && line[i] != '\'' {
				word = append(word, line[i])
				i++
				continue
			}
			var size int
			if word, size = unquote(word, line[i:]); size == 0 {
				return nil, false
			}
			if i += size; i < len(line) && !blank(line[i]) {
				return nil, false
			}
		}
		words = append(words, string(word))
	}
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r' }

// unquote appends the content of the quoted word at the start of s, and returns how many bytes of s
// the word has with its quotes: 0 if the closing quote is missing.
func unquote(word []byte, s string) (_ []byte, size int) {
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			return word, i + 1
		case c != '\\' || i+1 == len(s):
			word = append(word, c)
		case quote == '\'':
			if s[i+1] == '\'' {
				i++
			}
			word = append(word, s[i])
		case s[i+1] == 'x' && i+3 < len(s) && isHex(s[i+2]) && isHex(s[i+3]):
			n, _ := strconv.ParseUint(s[i+2:i+4], 16, 8) // They are two hexadecimal digits.
			word = append(word, byte(n))
			i += 3
		default:
			i++
			word = append(word, escaped(s[i]))
		}
	}
	return word, 0
}

func escaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// equal reports whether two words are equal, ignoring the case of ASCII letters.
func equal(word, want string) bool {
	if len(word) != len(want) {
		return false
	}
	for i := range len(word) {
		if upper(word[i]) != upper(want[i]) {
			return false
		}
	}
	return true
}

func upper(c byte) byte {
	if c >= 'a' && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}
