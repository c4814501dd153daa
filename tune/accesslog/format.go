package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Format reads the lines of one file.
type Format struct {
	name    string
	ended   bool // times are the ends of requests, if there is a duration
	queries []query
	parse   func(r *row, off, end int)
	// head says that the first line is not a request.
	head bool
	// trust are the proxies whose statements about earlier addresses are believed.
	trust []netip.Prefix
}

// query is an entry that comes from a parameter of the query.
type query struct {
	name  string
	entry int
}

// Formats returns the names that [Options.Format] knows.
func Formats() []string {
	return []string{"auto", "common", "combined", "json", "caddy", "envoy", "traefik", "alb", "csv"}
}

// candidate is a format that lines may have.
type candidate struct {
	name string // its name in [Options.Format]
	make func(o *Options, first []byte) (*Format, error)
}

// candidates are all formats, the more specific ones first.
var candidates = []candidate{
	{"alb", lineFormat(albFormat, &alb)},
	{"envoy", lineFormat(envoyFormat, &envoy)},
	{"traefik", lineFormat(traefikFormat, &traefik)},
	{"combined", lineFormat(combinedFormat, &clf)},
	{"common", lineFormat(commonFormat, &clf)},
	{"caddy", jsonFormat(caddyColumns, true, "request")},
	{"traefik", jsonFormat(traefikColumns, false, "DownstreamStatus")},
	{"envoy", jsonFormat(envoyColumns, false, "response_code")},
	{"json", jsonFormat(columns, true, "")},
	{"csv", csvFormat},
}

// newFormat finds the format of a file by its first lines.
func (o *Options) newFormat(lines [][]byte) (*Format, error) {
	if strings.ContainsAny(o.Format, "$%") {
		s := &nginx
		switch {
		case envoyOperator.MatchString(o.Format):
			s = &envoy
		case !strings.Contains(o.Format, "$"):
			s = &apache
		}
		return o.finish(lineFormat(strings.TrimSuffix(o.Format, "\n"), s)(o, nil))
	}
	if o.Format != "" && !slices.Contains(Formats(), o.Format) {
		return nil, &FormatError{Text: fmt.Sprintf("the format %q is neither one of %s nor a log_format with variables, such as '$remote_addr [$time_local]'", o.Format, strings.Join(Formats(), ", "))}
	}
	var best *Format
	most := -1
	var reason string
	for _, c := range candidates {
		if o.Format != "" && o.Format != "auto" && o.Format != c.name {
			continue
		}
		f, err := o.finish(c.make(o, firstOf(lines)))
		if err != nil {
			var wrong *FormatError
			if errors.As(err, &wrong) && o.Format == c.name && len(lines) > 0 {
				reason = wrong.Text
			}
			continue
		}
		read, why := o.reads(f, lines)
		if reason == "" {
			reason = why
		}
		if read > most && (read > 0 || o.Format == c.name) {
			// If the format was named, it is used whatever the file begins with.
			best, most = f, read
		}
	}
	switch {
	case best != nil:
		return best, nil
	case len(lines) == 0:
		return &Format{name: "empty", parse: func(r *row, _, _ int) { r.reason = "the format is not known" }}, nil
	case o.Format == "" || o.Format == "auto":
		return nil, &FormatError{Text: fmt.Sprintf("no format that is known reads the first lines, such as %q; name the format, or give the log_format of the server itself", cut(lines[0]))}
	}
	return nil, &FormatError{Text: fmt.Sprintf("the format %s does not read the first lines, such as %q: %s", o.Format, cut(lines[0]), reason)}
}

// FormatError says why the lines of a file cannot be read.
type FormatError struct {
	// File is the file's name.
	File string
	// Text says what is wrong.
	Text string
}

// Error names the file and says what is wrong.
func (e *FormatError) Error() string {
	if e.File == "" {
		return "headgate: " + e.Text
	}
	return "headgate: " + e.File + ": " + e.Text
}

// formatError returns a FormatError with a text that is formatted as by fmt.Sprintf.
func formatError(format string, args ...any) error {
	return &FormatError{Text: fmt.Sprintf(format, args...)}
}

func firstOf(lines [][]byte) []byte {
	if len(lines) == 0 {
		return nil
	}
	return lines[0]
}

func cut(line []byte) []byte { return line[:min(len(line), MaxSample)] }

// finish adds what all formats share.
func (o *Options) finish(f *Format, err error) (*Format, error) {
	if err != nil {
		return nil, err
	}
	for _, m := range o.Maps {
		if name, ok := strings.CutPrefix(m.Field, queryPrefix); ok {
			f.queries = append(f.queries, query{name, slices.Index(o.entries(), m.Name)})
		}
	}
	f.trust = o.Trust
	return f, nil
}

// reads counts the lines that the format can read, and returns what is wrong with the first one
// that it cannot.
func (o *Options) reads(f *Format, lines [][]byte) (n int, reason string) {
	b := &Batch{format: f, extras: len(o.entries())}
	if f.head {
		lines = lines[1:]
	}
	for _, line := range lines {
		b.reset()
		b.buf = append(append(b.buf, line...), '\n')
		b.parse()
		n += len(b.records)
		if len(b.bad) > 0 && reason == "" {
			reason = b.bad[0].Reason
		}
	}
	return n, reason
}

// parse reads all lines of the batch.
func (b *Batch) parse() {
	r := row{batch: b, stamps: new(stamps)}
	b.ordered = true
	for off, all := 0, len(b.buf); off < all; {
		end, next := all, all
		if i := bytes.IndexByte(b.buf[off:all], '\n'); i >= 0 {
			end, next = off+i, off+i+1
		}
		if end > off && b.buf[end-1] == '\r' {
			end--
		}
		b.lines++
		if end > off { // an empty line has no request, and is not unreadable either
			r.begin()
			b.format.parse(&r, off, end)
			if !r.end(b.format) {
				b.refuse(b.buf[off:end], r.reason)
			}
		}
		off = next
	}
	b.left = len(b.records)
	if !b.ordered {
		b.sort()
	}
}

// maxBad is how many unreadable lines of one batch are kept.
const maxBad = 5

// refuse counts a line that cannot be read.
func (b *Batch) refuse(line []byte, reason string) {
	b.badAll++
	if len(b.bad) < maxBad {
		b.bad = append(b.bad, Unreadable{Line: int64(b.lines), Text: string(cut(line)), Reason: reason})
	}
}

// lineFormat returns a function that makes a Format from a log_format.
func lineFormat(text string, s *spelling) func(*Options, []byte) (*Format, error) {
	return func(o *Options, _ []byte) (*Format, error) {
		t, err := o.compile(text, s)
		if err != nil {
			return nil, err
		}
		return &Format{name: text, ended: s.ended, parse: t.parse}, nil
	}
}

// jsonFormat returns a function that makes a Format for lines of JSON. A line of that kind has the
// member mark.
func jsonFormat(known fields, ended bool, mark string) func(*Options, []byte) (*Format, error) {
	return func(o *Options, first []byte) (*Format, error) {
		if len(first) > 0 && first[0] != '{' {
			return nil, &FormatError{Text: "the line is not an object of JSON"}
		}
		if mark != "" && len(first) > 0 && !bytes.Contains(first, []byte(`"`+mark+`"`)) {
			return nil, &FormatError{Text: fmt.Sprintf("the line has no %q", mark)}
		}
		var members []member
		for _, name := range known.names() {
			if sinks := o.sinksFor("", known.sinks(name)); len(sinks) > 0 {
				members = add(members, name, sinks)
			}
		}
		for _, m := range o.Maps {
			if strings.HasPrefix(m.Field, queryPrefix) {
				continue
			}
			field := m.Field
			if m.Name == "duration" {
				field, _ = cutUnit(field)
			}
			one := Options{Maps: []Map{m}}
			sinks := one.sinksFor(field, nil)
			for i := range sinks {
				if sinks[i].part == partEntry {
					sinks[i].entry = slices.Index(o.entries(), m.Name)
				}
			}
			members = add(members, field, sinks)
		}
		parse := func(r *row, off, end int) {
			obj := object{row: r, end: end}
			if at := obj.read(obj.space(off), members, 0); r.reason == "" && (at < 0 || obj.space(at) < end) {
				r.reason = "the line is not one object of JSON"
			}
		}
		return &Format{name: "json", ended: ended, parse: parse}, nil
	}
}

// csvFormat makes the Format of a file whose first line has the names of the columns.
func csvFormat(o *Options, first []byte) (*Format, error) {
	comma := byte(',')
	for _, c := range []byte(";\t|") {
		if bytes.Count(first, []byte{c}) > bytes.Count(first, []byte{comma}) {
			comma = c
		}
	}
	var all [][]sink
	some := false
	for _, name := range bytes.Split(first, []byte{comma}) {
		field := string(bytes.Trim(bytes.TrimSpace(name), `"`))
		sinks := o.sinksFor(field, columns.sinks(strings.ToLower(field)))
		all = append(all, sinks)
		some = some || len(sinks) > 0
	}
	if !some || len(all) < 2 {
		return nil, &FormatError{Text: "the first line does not name columns that are known or mapped"}
	}
	parse := func(r *row, off, end int) {
		for i := 0; ; i++ {
			from, to, after := r.batch.cell(off, end, comma)
			switch {
			case after < 0:
				r.reason = "a quote is not closed"
			case i >= len(all):
				r.reason = "the line has more columns than the first line"
			default:
				r.put(all[i], from, to, false)
			}
			if r.reason != "" || after > end {
				if r.reason == "" && i < len(all)-1 {
					r.reason = "the line has fewer columns than the first line"
				}
				return
			}
			off = after
		}
	}
	return &Format{name: "csv", head: true, parse: parse}, nil
}

// cell finds a value. It returns where the value begins and ends, and where the next one begins.
// after is beyond end after the last value, and -1 if there is a mistake.
func (b *Batch) cell(off, end int, comma byte) (from, to, after int) {
	if off < end && b.buf[off] == '"' {
		doubled := false
		for i := off + 1; i < end; i++ {
			if b.buf[i] != '"' {
				continue
			}
			if i+1 < end && b.buf[i+1] == '"' {
				doubled = true
				i++
				continue
			}
			if i+1 < end && b.buf[i+1] != comma {
				return 0, 0, -1
			}
			from, to = off+1, i
			if doubled {
				text := bytes.ReplaceAll(b.buf[from:to], []byte(`""`), []byte(`"`))
				from = len(b.buf)
				b.buf = append(b.buf, text...)
				to = len(b.buf)
			}
			return from, to, i + 2
		}
		return 0, 0, -1
	}
	if i := bytes.IndexByte(b.buf[off:end], comma); i >= 0 {
		return off, off + i, off + i + 1
	}
	return off, end, end + 1
}
