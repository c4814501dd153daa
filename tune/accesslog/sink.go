package accesslog

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// part is what a field of a line describes.
type part uint8

const (
	partTime part = iota
	partIP
	partUser
	partMethod
	partTarget
	partHost
	partAgent
	partStatus
	partDuration
	partRequest // GET /path HTTP/1.1
	partEntry   // one of Options.Entries
	parts
)

// partNames are the names by which [Map.Name] knows the parts.
var partNames = map[string]part{
	"time": partTime, "ip": partIP, "user": partUser, "method": partMethod, "path": partTarget, "host": partHost,
	"agent": partAgent, "status": partStatus, "duration": partDuration, "request": partRequest,
}

// Map says which field of a log holds something.
type Map struct {
	// Name is time, ip, user, method, path, request (GET /path HTTP/1.1), host, status,
	// duration or agent, or else the name of an entry of the descriptor.
	Name string
	// Field is the log's name of the field: a variable of a log_format without its sign, a
	// name in JSON, with dots where objects are nested, the name of a column, or "query:"
	// and a parameter of the query. The field of a duration may end in :s, :ms, :us or :ns.
	Field string
}

// ParseMap reads NAME=FIELD.
func ParseMap(text string) (Map, error) {
	name, field, ok := strings.Cut(text, "=")
	if !ok || name == "" || field == "" {
		return Map{}, fmt.Errorf("headgate: %q is not NAME=FIELD, such as api_key=http_x_api_key", text)
	}
	m := Map{name, field}
	if p, ok := partNames[name]; ok && p != partRequest && strings.HasPrefix(field, queryPrefix) {
		return Map{}, fmt.Errorf("headgate: %q: only entries of the descriptor come from the query, and %s is none", text, name)
	}
	return m, nil
}

// queryPrefix begins the Field of what is a parameter of the query.
const queryPrefix = "query:"

// sink says where a field of a line is stored.
type sink struct {
	part  part
	rank  uint8   // if several fields describe one part, the one with the lowest rank counts
	unit  float64 // of a duration, in microseconds
	entry int
}

// bit is that of what is stored in [Batch.found]. All extras beyond the 50th have one together.
func (s *sink) bit() uint64 {
	if s.part == partEntry {
		return 1 << min(int(parts)+s.entry, 63)
	}
	return 1 << s.part
}

// units are the suffixes of the fields of durations.
var units = map[string]float64{"s": 1e6, "ms": 1e3, "us": 1, "ns": 1e-3}

// cutUnit cuts the unit of a duration off the name of its field.
func cutUnit(field string) (name string, unit float64) {
	if i := strings.LastIndexByte(field, ':'); i > 0 && units[field[i+1:]] != 0 {
		return field[:i], units[field[i+1:]]
	}
	return field, 0
}

// sinksFor returns the sinks of a log's field: those to which it was mapped, or else the known
// ones.
func (o *Options) sinksFor(field string, known []sink) (all []sink) {
	for _, m := range o.Maps {
		name, unit := m.Field, 0.0
		p, isPart := partNames[m.Name]
		if p == partDuration && isPart {
			if name, unit = cutUnit(name); unit == 0 {
				unit = 1e6
			}
		}
		if !strings.EqualFold(name, field) {
			continue
		}
		s := sink{part: p, unit: unit}
		if !isPart {
			s = sink{part: partEntry, entry: slices.Index(o.entries(), m.Name)}
		}
		all = append(all, s)
	}
	for _, k := range known {
		if !o.maps(k.part) {
			k.rank++
			all = append(all, k)
		}
	}
	return all
}

// maps reports whether the part was mapped to some field.
func (o *Options) maps(p part) bool {
	return slices.ContainsFunc(o.Maps, func(m Map) bool {
		q, ok := partNames[m.Name]
		return ok && (q == p || q == partRequest && (p == partMethod || p == partTarget))
	})
}

// entries returns the names of mapped values that are no part of a Record, in their order.
func (o *Options) entries() (names []string) {
	for _, m := range o.Maps {
		if _, isPart := partNames[m.Name]; !isPart && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}

// row is a line that is being parsed.
type row struct {
	batch  *Batch
	stamps *stamps
	rec    Record
	ranks  [parts]uint8 // the rank of the stored value plus one; 0 if there is none
	reason string       // why the line cannot be read
	first  int          // the place of the row's extras in the batch
}

func (r *row) begin() {
	r.rec, r.ranks, r.reason = Record{Duration: -1}, [parts]uint8{}, ""
	r.first = len(r.batch.extra)
	for range r.batch.extras {
		r.batch.extra = append(r.batch.extra, Field{})
	}
}

// put stores the bytes from off to end of the batch in the sinks. An absent value is empty or "-".
func (r *row) put(sinks []sink, off, end int, escaped bool) {
	if off == end || end == off+1 && r.batch.buf[off] == '-' {
		return
	}
	for i := range sinks {
		r.putOne(&sinks[i], off, end, escaped)
	}
}

func (r *row) putOne(s *sink, off, end int, escaped bool) {
	r.batch.found |= s.bit()
	if s.part != partEntry {
		if have := r.ranks[s.part]; have != 0 && have <= s.rank+1 {
			return
		}
		r.ranks[s.part] = s.rank + 1
	}
	if escaped && bytes.IndexByte(r.batch.buf[off:end], '\\') >= 0 {
		off, end = r.batch.unescape(off, end)
	}
	b, f := r.batch.buf[off:end], Field{uint32(off), uint32(end - off)}
	switch s.part {
	case partTime:
		var ok bool
		if r.rec.Time, r.rec.Fine, ok = r.stamps.read(b); !ok {
			r.reason = "the time is none that is known"
		}
	case partIP:
		r.rec.IP = client(b, f, r.batch.format.trust)
	case partUser:
		r.rec.User = f
	case partMethod:
		r.rec.Method = f
	case partTarget:
		r.rec.Target = f
	case partHost:
		r.rec.Host = f
	case partAgent:
		r.rec.Agent = f
	case partStatus:
		if len(b) == 3 && b[0] >= '1' && b[0] <= '9' && two(b[1:]) >= 0 {
			r.rec.Status = int32(b[0]-'0')*100 + int32(two(b[1:]))
		}
	case partDuration:
		r.rec.Duration = quantity(b, s.unit)
	case partRequest:
		r.request(b, off)
	case partEntry:
		r.batch.extra[r.first+s.entry] = f
	}
}

// request splits a line such as GET /path HTTP/1.1.
func (r *row) request(b []byte, off int) {
	method := bytes.IndexByte(b, ' ')
	if method <= 0 {
		r.reason = "the request is not METHOD TARGET PROTOCOL"
		return
	}
	end := len(b)
	// In logs of refused requests, a target may contain spaces.
	if i := bytes.LastIndexByte(b, ' '); i > method && bytes.HasPrefix(b[i+1:], []byte("HTTP/")) {
		end = i
	}
	for _, c := range b[:method] {
		if !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-' || c == '_') {
			r.reason = "the request is not METHOD TARGET PROTOCOL"
			return
		}
	}
	if r.ranks[partMethod] == 0 {
		r.rec.Method = Field{uint32(off), uint32(method)}
	}
	if r.ranks[partTarget] == 0 {
		r.rec.Target = Field{uint32(off + method + 1), uint32(end - method - 1)}
	}
}

// end checks the row and keeps its record.
func (r *row) end(f *Format) bool {
	if r.reason == "" && r.ranks[partTime] == 0 {
		r.reason = "there is no time"
	}
	if r.reason != "" {
		r.batch.extra = r.batch.extra[:r.first]
		return false
	}
	if f.ended && r.rec.Duration > 0 {
		if r.rec.Time -= r.rec.Duration; !r.rec.Fine {
			r.rec.Time -= modulo(r.rec.Time, second)
		}
	}
	for _, q := range f.queries {
		value := r.batch.parameter(r.rec.Target, q.name)
		if r.batch.extra[r.first+q.entry] = value; value.size > 0 {
			r.batch.found |= (&sink{part: partEntry, entry: q.entry}).bit()
		}
	}
	b := r.batch
	if r.rec.Time < b.newest {
		b.ordered = false
	} else {
		b.newest = r.rec.Time
	}
	b.records = append(b.records, r.rec)
	return true
}

// client returns the client's address in a field. In a list, it is the last address, which the
// nearest proxy wrote. If that is a trusted proxy, it is the address before it, and so on. If all
// are trusted, it is the first.
func client(b []byte, f Field, trust []netip.Prefix) Field {
	for end := len(b); ; {
		from := bytes.LastIndexByte(b[:end], ',') + 1
		at := from
		for at < end && b[at] == ' ' {
			at++
		}
		one := address(b[at:end], Field{off: f.off + uint32(at)})
		if from == 0 || !trusted(trust, b[one.off-f.off:one.off-f.off+one.size]) {
			return one
		}
		end = from - 1
	}
}

// trusted reports whether an address is one of a trusted proxy.
func trusted(trust []netip.Prefix, b []byte) bool {
	if len(trust) == 0 {
		return false
	}
	ip, err := netip.ParseAddr(string(bytes.TrimSpace(b)))
	return err == nil && slices.ContainsFunc(trust, func(p netip.Prefix) bool { return p.Contains(ip.Unmap().WithZone("")) })
}

// address returns the field without a port.
func address(b []byte, f Field) Field {
	switch colon := bytes.IndexByte(b, ':'); {
	case len(b) > 0 && b[0] == '[':
		if i := bytes.IndexByte(b, ']'); i > 0 {
			b, f.off = b[1:i], f.off+1
		}
	case colon >= 0 && len(bytes.Trim(b[colon+1:], "0123456789")) == 0:
		b = b[:colon]
	}
	f.size = uint32(len(b))
	return f
}

// parameter finds a parameter of the query in a target. It returns the parameter's value with its
// escapes.
func (b *Batch) parameter(target Field, name string) Field {
	text := b.text(target)
	at := strings.IndexByte(text, '?') + 1
	if at == 0 {
		return Field{}
	}
	for at < len(text) {
		end := strings.IndexByte(text[at:], '&')
		if end < 0 {
			end = len(text)
		} else {
			end += at
		}
		if pair := text[at:end]; len(pair) > len(name) && pair[len(name)] == '=' && pair[:len(name)] == name {
			return Field{target.off + uint32(at+len(name)+1), uint32(len(pair) - len(name) - 1)}
		}
		at = end + 1
	}
	return Field{}
}

// unescape appends the text, with its escapes resolved, after the lines, and returns its position.
// It knows \" and \\ as Apache writes them, \x22 as nginx does, and the escapes of JSON.
func (b *Batch) unescape(off, end int) (from, to int) {
	from = len(b.buf)
	for i := off; i < end; i++ {
		c := b.buf[i]
		if c != '\\' || i+1 == end {
			b.buf = append(b.buf, c)
			continue
		}
		i++
		switch c = b.buf[i]; {
		case c == 'x' && i+2 < end && hex(b.buf[i+1]) >= 0 && hex(b.buf[i+2]) >= 0:
			b.buf = append(b.buf, byte(hex(b.buf[i+1])<<4|hex(b.buf[i+2])))
			i += 2
		case c == 'u' && i+4 < end:
			var n int
			b.buf, n = appendEscaped(b.buf, b.buf[i-1:end])
			i += n - 2
		default:
			if at := strings.IndexByte("nrtbf", c); at >= 0 {
				c = "\n\r\t\b\f"[at]
			}
			b.buf = append(b.buf, c)
		}
	}
	return from, len(b.buf)
}

func hex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
