package accesslog

import (
	"bytes"
	"strings"
)

// piece is one variable of a log_format.
type piece struct {
	name  string
	sinks []sink
	// until is the text between this variable and the next one, or up to the end of the line. It is
	// empty only for the last variable.
	until  string
	quoted bool // the variable stands in quotes
}

// template is a compiled log_format.
type template struct {
	head   string // before the first variable
	pieces []piece
}

// spelling is the syntax of variables in a program's log_format.
type spelling struct {
	// next finds the first variable in a text: its name and its position.
	next func(text string) (name string, from, to int, err error)
	// known are the well-known variables, and name is how a variable is looked up among them; nil
	// means as it is written.
	known fields
	name  func(string) string
	ended bool // times are the ends of requests
}

// compile makes a template of a log_format.
func (o *Options) compile(text string, s *spelling) (*template, error) {
	t := new(template)
	for first := true; ; first = false {
		name, from, to, err := s.next(text)
		if err != nil {
			return nil, err
		}
		between := text
		if name != "" {
			between = text[:from]
		}
		switch {
		case first:
			t.head = between
		case between == "" && name != "":
			return nil, formatError("nothing stands between %s and %s in the format, so that they cannot be told apart", t.pieces[len(t.pieces)-1].name, name)
		default:
			last := &t.pieces[len(t.pieces)-1]
			last.until = between
			last.quoted = last.quoted && strings.HasPrefix(between, `"`)
		}
		if name == "" {
			if len(t.pieces) == 0 {
				return nil, formatError("the format %q has no variables", text)
			}
			return t, nil
		}
		canonical := name
		if s.name != nil {
			canonical = s.name(name)
		}
		t.pieces = append(t.pieces, piece{name: name, sinks: o.sinksFor(name, s.known.sinks(canonical)), quoted: strings.HasSuffix(between, `"`)})
		text = text[to:]
	}
}

// parse reads the line from off to end of the batch.
func (t *template) parse(r *row, off, end int) {
	buf := r.batch.buf[:end]
	if !bytes.HasPrefix(buf[off:], []byte(t.head)) {
		r.reason = "the line does not begin as the format does"
		return
	}
	at := off + len(t.head)
	for i := range t.pieces {
		p := &t.pieces[i]
		to := end
		switch {
		case p.until == "":
			if p.quoted {
				break
			}
			// The line may have more fields than the format.
			if i := bytes.IndexByte(buf[at:], ' '); i >= 0 {
				to = at + i
			}
		case p.quoted:
			// A line may have been cut off in its last text, usually a long User-Agent.
			if to = quote(buf, at); to < 0 && i == len(t.pieces)-1 && p.until == `"` {
				r.put(p.sinks, at, end, true)
				return
			}
		default:
			to = index(buf, at, p.until)
		}
		if to < 0 || to+len(p.until) > end || string(buf[to:to+len(p.until)]) != p.until {
			r.reason = "what stands behind " + p.name + " is not what the format says"
			return
		}
		if len(p.sinks) > 0 {
			r.put(p.sinks, at, to, p.quoted)
		}
		if at = to + len(p.until); r.reason != "" {
			return
		}
	}
	if at < end && buf[at] != ' ' {
		r.reason = "the line goes on behind the end of the format"
	}
}

// quote finds the quote that ends a text, or -1.
func quote(buf []byte, at int) int {
	for i := at; ; {
		n := bytes.IndexByte(buf[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for i-slashes > at && buf[i-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
		i++
	}
}

// index finds a text that is not empty, or -1.
func index(buf []byte, at int, text string) int {
	for i := at; ; i++ {
		n := bytes.IndexByte(buf[i:], text[0])
		if n < 0 {
			return -1
		}
		if i += n; len(text) == 1 || bytes.HasPrefix(buf[i:], []byte(text)) {
			return i
		}
	}
}
