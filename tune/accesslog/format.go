package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"regexp"
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
	b.sort()
}

// sort puts the places of the records in the order of time, and of lines where times are equal. Each
// time and its place are sorted as one number, if it has 64 bits at most: to move the records would take
// several times as long.
func (b *Batch) sort() {
	n := len(b.records)
	b.order = slices.Grow(b.order[:0], n)[:n]
	for i := range b.order {
		b.order[i] = uint32(i)
	}
	if b.ordered {
		return
	}
	b.keys = slices.Grow(b.keys[:0], n)[:n]
	oldest := b.newest
	for i := range b.records {
		oldest = min(oldest, b.records[i].Time)
	}
	width := bits.Len(uint(n))
	if bits.Len64(uint64(b.newest-oldest))+width > 64 {
		slices.SortStableFunc(b.order, func(x, y uint32) int { return cmp.Compare(b.records[x].Time, b.records[y].Time) })
		return
	}
	for i := range b.records {
		b.keys[i] = uint64(b.records[i].Time-oldest)<<width | uint64(i)
	}
	slices.Sort(b.keys)
	for i, key := range b.keys {
		b.order[i] = uint32(key & (1<<width - 1))
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

// fields are the names under which a format has each part, the best one first. A name may end in
// the unit of a duration, as that of a [Map] may.
type fields map[part]string

// sinks are those of the field with the name; none if it is not known.
func (f fields) sinks(name string) (all []sink) {
	for p := range parts {
		for rank, known := range strings.Fields(f[p]) {
			if known, unit := cutUnit(known); known == name {
				all = append(all, sink{part: p, rank: uint8(rank), unit: unit})
			}
		}
	}
	return all
}

// names are those of all fields.
func (f fields) names() (all []string) {
	for p := range parts {
		for _, name := range strings.Fields(f[p]) {
			name, _ = cutUnit(name)
			all = append(all, name)
		}
	}
	return all
}

// nginx is the syntax $remote_addr.
var nginx = spelling{
	ended: true,
	next: func(text string) (name string, from, to int, err error) {
		for i := 0; i < len(text); i++ {
			if text[i] != '$' {
				continue
			}
			j, brace := i+1, false
			if j < len(text) && text[j] == '{' {
				brace = true
				j++
			}
			k := j
			for k < len(text) && (text[k] == '_' || text[k] >= '0' && text[k] <= '9' || text[k]|0x20 >= 'a' && text[k]|0x20 <= 'z') {
				k++
			}
			name, to = text[j:k], k
			if brace {
				if k == len(text) || text[k] != '}' {
					return "", 0, 0, formatError("${ is not closed in the format %q", text)
				}
				to++
			}
			if name == "" {
				return "", 0, 0, formatError("no variable follows the $ in the format %q", text[i:])
			}
			return name, i, to, nil
		}
		return "", 0, 0, nil
	},
	known: fields{
		partTime: "msec time_local time_iso8601", partIP: "remote_addr", partUser: "remote_user", partRequest: "request",
		partMethod: "request_method", partTarget: "request_uri uri document_uri", partHost: "host http_host server_name",
		partAgent: "http_user_agent", partStatus: "status", partDuration: "request_time:s",
	},
}

// apache is the syntax %h, %>s and %{User-Agent}i. Its times are the beginnings of requests.
var apache = spelling{
	next: func(text string) (name string, from, to int, err error) {
		i := strings.IndexByte(text, '%')
		if i < 0 {
			return "", 0, 0, nil
		}
		j := i + 1
		for j < len(text) && strings.IndexByte("<>!,0123456789", text[j]) >= 0 {
			j++
		}
		start := j
		if j < len(text) && text[j] == '{' {
			end := strings.IndexByte(text[j:], '}')
			if end < 0 {
				return "", 0, 0, formatError("%%{ is not closed in the format %q", text)
			}
			j += end + 1
		}
		if strings.HasPrefix(text[min(j, len(text)):], "^t") {
			j += 2
		}
		if j >= len(text) {
			return "", 0, 0, formatError("no letter follows the %% in the format %q", text[i:])
		}
		return text[start : j+1], i, j + 1, nil
	},
	known: fields{
		partTime: "{msec}t {usec}t {sec}t t", partIP: "a h {c}a", partUser: "u", partRequest: "r", partMethod: "m", partTarget: "U",
		partHost: "{Host}i V v", partAgent: "{User-Agent}i {User-agent}i", partStatus: "s",
		partDuration: "D:us {us}T:us {ms}T:ms T:s {s}T:s",
	},
}

// envoyOperator matches %REQ(:METHOD)%, %START_TIME% and %REQ(X?Y):10%.
var envoyOperator = regexp.MustCompile(`%([A-Z0-9_]+(?:\([^)]*\))?)(?::\d+)?%`)

// envoy is the syntax %START_TIME%.
var envoy = spelling{
	next: func(text string) (name string, from, to int, err error) {
		m := envoyOperator.FindStringSubmatchIndex(text)
		if m == nil {
			return "", 0, 0, nil
		}
		return text[m[2]:m[3]], m[0], m[1], nil
	},
	known: fields{
		partTime: "START_TIME", partStatus: "RESPONSE_CODE", partDuration: "DURATION:ms",
		partIP:     "DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT REQ(X-FORWARDED-FOR)",
		partMethod: "REQ(:METHOD)", partTarget: "REQ(X-ENVOY-ORIGINAL-PATH?:PATH) REQ(:PATH)", partHost: "REQ(:AUTHORITY)", partAgent: "REQ(USER-AGENT)",
	},
	// The names of headers are written in any case, and START_TIME may have a format.
	name: func(name string) string {
		name = strings.ToUpper(name)
		if head, _, ok := strings.Cut(name, "("); ok && head != "REQ" {
			return head
		}
		return name
	},
}

// The log_formats that have names.
const (
	commonFormat   = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combinedFormat = commonFormat + ` "$http_referer" "$http_user_agent"`
	traefikFormat  = combinedFormat + ` $request_count "$router" "$service_url" ${duration_ms}ms`
	envoyFormat    = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %UPSTREAM_SERVICE_TIME% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`
	albFormat      = `$type $time $elb $client_port $target_port $request_processing_time $target_processing_time $response_processing_time $elb_status_code $target_status_code $received_bytes $sent_bytes "$request" "$user_agent" $ssl_cipher $ssl_protocol $target_group_arn "$trace_id" "$domain_name" "$chosen_cert_arn" $matched_rule_priority $request_creation_time`
)

// clf is for the log_formats common and combined. Their times are the beginnings (Apache) or the
// ends (nginx) of requests. Only a duration could distinguish these.
var clf = spelling{next: nginx.next, known: nginx.known}

// traefik has the time of the end of a request, and its duration in milliseconds.
var traefik = spelling{next: nginx.next, ended: true, known: fields{
	partTime: "time_local", partIP: "remote_addr", partUser: "remote_user", partRequest: "request", partAgent: "http_user_agent",
	partStatus: "status", partDuration: "duration_ms:ms",
}}

// alb is the log of AWS's load balancer, which has the time at which a request arrived.
var alb = spelling{next: nginx.next, known: fields{
	partTime: "request_creation_time time", partIP: "client_port", partRequest: "request", partHost: "domain_name", partAgent: "user_agent",
	partStatus: "elb_status_code",
}}

// columns are fields of JSON and CSV with only one possible meaning.
var columns = fields{
	partTime:     "time timestamp @timestamp ts time_iso8601 time_local start_time date",
	partIP:       "ip client_ip clientip remote_ip remote_addr client",
	partUser:     "user remote_user user_id",
	partRequest:  "request",
	partMethod:   "method request_method verb",
	partTarget:   "request_uri uri path url",
	partHost:     "host http_host server_name",
	partAgent:    "user_agent http_user_agent agent",
	partStatus:   "status status_code response",
	partDuration: "request_time:s duration_ms:ms",
}

// caddyColumns are those of Caddy's access log.
var caddyColumns = fields{
	partTime: "ts", partIP: "request.client_ip request.remote_ip request.remote_addr", partUser: "user_id", partMethod: "request.method",
	partTarget: "request.uri", partHost: "request.host", partAgent: "request.headers.User-Agent", partStatus: "status", partDuration: "duration:s",
}

// traefikColumns are those of Traefik's access log in JSON.
var traefikColumns = fields{
	partTime: "StartUTC StartLocal", partIP: "ClientHost ClientAddr", partUser: "ClientUsername", partMethod: "RequestMethod",
	partTarget: "RequestPath", partHost: "RequestHost RequestAddr", partAgent: "request_User-Agent", partStatus: "DownstreamStatus",
	partDuration: "Duration:ns",
}

// envoyColumns are those of Envoy and Envoy Gateway by default.
var envoyColumns = fields{
	partTime: "start_time", partIP: "downstream_remote_address x-forwarded-for x_forwarded_for", partMethod: "method",
	partTarget: "x-envoy-origin-path path", partHost: ":authority authority", partAgent: "user-agent user_agent",
	partStatus: "response_code", partDuration: "duration:ms",
}

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
