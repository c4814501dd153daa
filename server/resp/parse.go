package resp

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// The bounds of a command.
const (
	// MaxCommand is the largest command that is read, in bytes. 64 checks with
	// keys of usual length are a tenth of it.
	MaxCommand = 64 << 10
	// MaxArguments is how many arguments it may have, its name among them: enough
	// for 64 checks.
	MaxArguments = 1024
)

// The same for callers who have not shown the token yet, and do not need more to
// show it.
const (
	strangerCommand   = 4 << 10
	strangerArguments = 16
)

// protocolError is why what arrives cannot be understood any more: where the next
// command begins is not known.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

func malformed(format string, args ...any) error {
	return protocolError(fmt.Sprintf(format, args...))
}

// span is where an argument stands in what was parsed.
type span struct{ from, to int }

// parser finds commands in what arrives.
type parser struct {
	// maxBytes and maxArguments bound a command.
	maxBytes, maxArguments int

	// args are the arguments of the command that was found, if it is an array of
	// strings; words are those of an inline command, which is a line of text.
	args  []span
	words []string
	// need is, if no complete command was found, how many bytes there must be
	// before looking again makes sense.
	need int
}

// parse finds the command that b begins with, and returns its size in bytes: 0 if
// it is not complete yet. A command may have no arguments at all, and means nothing
// then.
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

// find is parse, but for what the bytes that are there say by their number.
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

// handshake is what TLS begins with.
const handshake = 0x16

// maxDigits is how long numbers may be that say how much follows.
const maxDigits = 10

// number reads the decimal number at b[pos:] and the end of its line, and returns
// where the next line begins: 0 if it is not complete yet, or wrong.
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

// maxLine is the longest inline command.
const maxLine = 4 << 10

// parseLine finds an inline command: what a person types who has no client.
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

// ofHTTP reports whether a line is one that requests of HTTP begin with. A web page
// can make a browser send such a request anywhere, with a body of its choice, which
// must not be read as commands.
func ofHTTP(words []string) bool {
	return len(words) > 0 && (strings.HasPrefix(words[len(words)-1], "HTTP/") || equal(words[0], "Host:"))
}

// split takes a line apart at its blanks. Parts may be quoted: 'as it is, but for
// \”, or "with \n, \r, \t, \xHH, \\ and \"".
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

// unquote appends what the quotes at the beginning of s hold, and returns how many
// bytes of s that is: 0 if they do not end.
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

// equal reports whether a word is the given one, whatever the case of its ASCII
// letters.
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
