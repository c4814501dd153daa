package accesslog

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// member is a member of an object whose value is needed.
type member struct {
	name  string
	sinks []sink
	in    []member // if its value is an object
}

// add adds a needed member by a name that may contain dots. A dot may separate nested objects, or
// be a part of the name.
func add(members []member, name string, sinks []sink) []member {
	members = addOne(members, name, sinks)
	if head, rest, ok := strings.Cut(name, "."); ok {
		for i := range members {
			if members[i].name == head {
				members[i].in = add(members[i].in, rest, sinks)
				return members
			}
		}
		members = append(members, member{name: head, in: add(nil, rest, sinks)})
	}
	return members
}

func addOne(members []member, name string, sinks []sink) []member {
	for i := range members {
		if members[i].name == name {
			members[i].sinks = append(members[i].sinks, sinks...)
			return members
		}
	}
	return append(members, member{name: name, sinks: sinks})
}

// object is a line of JSON that is being read. Its methods return the position after what they have
// read, or -1.
type object struct {
	row *row
	end int
}

// maxNesting bounds the depth of needed objects. Other objects are skipped without recursion.
const maxNesting = 8

func (o *object) space(at int) int {
	for buf := o.row.batch.buf; at < o.end; at++ {
		if c := buf[at]; c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return at
		}
	}
	return o.end
}

// read reads an object that begins at the place.
func (o *object) read(at int, members []member, depth int) int {
	if at >= o.end || o.row.batch.buf[at] != '{' || depth > maxNesting {
		return -1
	}
	if at = o.space(at + 1); at < o.end && o.row.batch.buf[at] == '}' {
		return at + 1
	}
	for at < o.end {
		name, escaped, after := o.text(at)
		if after < 0 {
			return -1
		}
		var found *member
		if !escaped {
			key := o.row.batch.buf[name : after-1]
			for i := range members {
				if m := &members[i]; len(m.name) == len(key) && string(key) == m.name {
					found = m
					break
				}
			}
		}
		if at = o.space(after); at >= o.end || o.row.batch.buf[at] != ':' {
			return -1
		}
		if at = o.value(o.space(at+1), found, depth); at < 0 {
			return -1
		}
		if at = o.space(at); at >= o.end {
			return -1
		}
		switch o.row.batch.buf[at] {
		case '}':
			return at + 1
		case ',':
			at = o.space(at + 1)
		default:
			return -1
		}
	}
	return -1
}

// text reads a string. Its bytes begin at first and end before the quote at after-1.
func (o *object) text(at int) (first int, escaped bool, after int) {
	buf := o.row.batch.buf
	if at >= o.end || buf[at] != '"' {
		return 0, false, -1
	}
	first = at + 1
	for i := first; i < o.end; i++ {
		switch buf[i] {
		case '"':
			return first, escaped, i + 1
		case '\\':
			escaped = true
			i++
		}
	}
	return 0, false, -1
}

// value reads a value and stores it where the member says.
func (o *object) value(at int, m *member, depth int) int {
	if at >= o.end {
		return -1
	}
	switch o.row.batch.buf[at] {
	case '"':
		first, escaped, after := o.text(at)
		if after >= 0 && m != nil {
			o.row.put(m.sinks, first, after-1, escaped)
		}
		return after
	case '{':
		if m != nil && m.in != nil {
			return o.read(at, m.in, depth+1)
		}
		return o.skip(at)
	case '[':
		// Headers are lists, of one value mostly.
		if m != nil && m.sinks != nil {
			if first := o.space(at + 1); first < o.end && o.row.batch.buf[first] == '"' {
				if o.value(first, m, depth) < 0 {
					return -1
				}
			}
		}
		return o.skip(at)
	}
	first := at
	for ; at < o.end; at++ {
		switch o.row.batch.buf[at] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return o.scalar(m, first, at)
		}
	}
	return o.scalar(m, first, at)
}

// scalar stores a number or a boolean. It ignores null.
func (o *object) scalar(m *member, first, after int) int {
	b := o.row.batch.buf[first:after]
	switch {
	case len(b) == 0:
		return -1
	case b[0] == '-' || b[0] >= '0' && b[0] <= '9', string(b) == "true", string(b) == "false":
		if m != nil {
			o.row.put(m.sinks, first, after, false)
		}
		return after
	case string(b) == "null":
		return after
	}
	return -1
}

// skip skips an object or a list. It counts brackets, but does not check that they match.
func (o *object) skip(at int) int {
	for depth := 0; at < o.end; at++ {
		switch o.row.batch.buf[at] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		case '"':
			_, _, after := o.text(at)
			if after < 0 {
				return -1
			}
			at = after - 1
		}
	}
	return -1
}

// appendEscaped appends the character for the escape \uXXXX at the beginning of b, which may be a
// pair of surrogates. It returns how many bytes of b that took. Invalid escapes are appended
// unchanged.
func appendEscaped(dst, b []byte) ([]byte, int) {
	r, ok := escape(b)
	switch {
	case !ok:
		return append(dst, b[:2]...), 2
	case utf16.IsSurrogate(r):
		if low, ok := escape(b[6:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return utf8.AppendRune(dst, pair), 12
			}
		}
		r = utf8.RuneError
	}
	return utf8.AppendRune(dst, r), 6
}

func escape(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		d := hex(c)
		if d < 0 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}
