package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/headgate/headgate/policy/models"
)

// The bounds of what a [Meter] remembers.
const (
	// maxUsage is how large the usage in an answer may be.
	maxUsage = 16 << 10
	// maxHeld is how much of an event is held back to see whether the client gets it. An event that
	// is larger is not the one that was asked for in its place.
	maxHeld = 64 << 10
)

// Meter takes the answer to a call piece by piece while it passes, and finds what the call has used.
// It is not safe for concurrent use.
type Meter struct {
	// Stream says that the answer comes in events, and Events is how many with a part of it have come.
	Stream bool
	Events int64
	// First is when the first part of the answer came.
	First time.Time

	protocol Protocol
	withhold bool // the event with the usage is not for the client
	find     finder
	found    usage
	last     bool // nothing of the usage is to come any more
	ended    bool // the answer is complete

	line    []byte // the beginning of the line, up to what tells its kind
	width   int    // how long the line is
	cr      bool   // the last line has ended with CR, to which LF may still belong
	taken   bool   // the last event was not for the client
	held    []byte // what has come of an event, if withhold is set
	passing bool   // the event is too large to be held
	out     []byte // what the client gets
}

// Meter returns the meter of the call's answer. events says that it is a stream of events.
func (c *Call) Meter(events bool) *Meter {
	return &Meter{protocol: c.Protocol, Stream: events, withhold: events && c.adds()}
}

// Pass takes the next piece of the answer, and returns what the client gets now, which may be
// nothing. That is valid until the next call, and while the piece does not change.
func (m *Meter) Pass(piece []byte) []byte {
	m.out = m.out[:0]
	m.note(piece)
	if !m.withhold {
		return piece
	}
	return m.out
}

// End is called when no more of the answer comes, and returns what the client still gets. whole
// says that the answer has ended by itself.
func (m *Meter) End(whole bool) []byte {
	m.ended = m.ended || whole
	rest := m.held
	m.held = nil
	return rest
}

// Read returns the body of an answer as the client gets it. It returns what has come, without
// waiting for more.
func (m *Meter) Read(from io.ReadCloser) io.ReadCloser { return &metered{ReadCloser: from, meter: m} }

// metered is the body of an answer that passes through a meter.
type metered struct {
	io.ReadCloser
	meter *Meter
	out   []byte // what the client still gets of what has come
	err   error
}

// Read implements [io.Reader].
func (b *metered) Read(p []byte) (int, error) {
	for len(b.out) == 0 && b.err == nil {
		n, err := b.ReadCloser.Read(p)
		got := b.meter.Pass(p[:n])
		if err != nil {
			got, b.err = append(got, b.meter.End(errors.Is(err, io.EOF))...), err
		}
		if !b.meter.withhold {
			return n, err
		}
		b.out = got
	}
	n := copy(p, b.out)
	if b.out = b.out[n:]; len(b.out) > 0 {
		return n, nil
	}
	return n, b.err
}

// note reads a piece of the answer.
func (m *Meter) note(p []byte) {
	if m.First.IsZero() && len(p) > 0 {
		m.First = time.Now()
	}
	if !m.Stream {
		m.find.feed(p)
		m.take()
		return
	}
	for len(p) > 0 {
		if m.cr && p[0] == '\n' {
			m.rest(p[:1])
			m.cr, p = false, p[1:]
			continue
		}
		piece, ends := firstLine(p)
		p = p[len(piece):]
		m.cr = ends && piece[len(piece)-1] == '\r'
		m.hold(piece)
		m.noteLine(piece, ends)
	}
}

// firstLine returns the first line of p with its end, which is LF, CR or both, or all of p if the line
// does not end there.
func firstLine(p []byte) (line []byte, ends bool) {
	end := bytes.IndexByte(p, '\n')
	if ends = end >= 0; ends {
		p = p[:end+1]
	}
	cr := bytes.IndexByte(p, '\r')
	if cr < 0 || ends && cr == end-1 {
		return p, ends
	}
	return p[:cr+1], true
}

// rest takes the LF behind a CR that has ended a line.
func (m *Meter) rest(lf []byte) {
	switch {
	case !m.withhold, len(m.held) == 0 && m.taken:
	case len(m.held) > 0:
		m.held = append(m.held, lf...)
	default:
		m.out = append(m.out, lf...)
	}
}

// noteLine reads a piece of a line of events, which may be its end.
func (m *Meter) noteLine(piece []byte, ends bool) {
	const data, event = "data:", "event:"
	rest := piece
	if n := len(event) + len(" message_stop\r\n") - len(m.line); n > 0 {
		m.line = append(m.line, piece[:min(n, len(piece))]...)
	}
	if before := len(data) - m.width; before > 0 {
		rest = piece[min(before, len(piece)):]
	}
	m.width += len(piece)
	if bytes.HasPrefix(m.line, []byte(data)) {
		m.find.feed(rest)
	}
	if !ends {
		return
	}
	switch content := bytes.TrimRight(m.line, "\r\n"); {
	case m.width <= 2 && len(content) == 0:
		m.endEvent()
	case string(bytes.TrimSpace(bytes.TrimPrefix(content, []byte(data)))) == "[DONE]",
		m.protocol == Messages && string(bytes.TrimSpace(bytes.TrimPrefix(content, []byte(event)))) == "message_stop":
		m.ended = true
	}
	m.line, m.width = m.line[:0], 0
}

// endEvent is called at the blank line behind an event.
func (m *Meter) endEvent() {
	said, empty := m.find.began, m.find.noChoices
	used := m.take()
	if said && !used && !m.ended {
		m.Events++
	}
	if !m.withhold {
		return
	}
	if m.taken = used && empty && !m.passing; !m.taken {
		m.out = append(m.out, withoutNull(m.held)...)
	}
	m.held, m.passing = m.held[:0], false
}

// hold keeps a piece of an event until it is complete, or passes it on.
func (m *Meter) hold(piece []byte) {
	if !m.withhold {
		return
	}
	m.taken = false
	if m.held = append(m.held, piece...); len(m.held) > maxHeld {
		m.passing = true
	}
	if m.passing {
		m.out, m.held = append(m.out, m.held...), m.held[:0]
	}
}

// withoutNull removes the empty usage that a provider puts into each event if it is asked for usage.
// In texts of JSON the quotes would be escaped.
func withoutNull(event []byte) []byte {
	const usage, null = `"usage"`, "null"
	begin := -1
	for at := 0; ; { // the last one; LastIndex takes longer
		next := bytes.Index(event[at:], []byte(usage))
		if next < 0 {
			break
		}
		begin = at + next
		at = begin + len(usage)
	}
	if begin < 0 {
		return event
	}
	end := blank(event, begin+len(usage))
	if event[end] != ':' { // There is an end of a line at least.
		return event
	}
	if end = blank(event, end+1); !bytes.HasPrefix(event[end:], []byte(null)) {
		return event
	}
	end += len(null)
	before := bytes.TrimRight(event[:begin], " ")
	if bytes.HasSuffix(before, []byte(",")) {
		return append(before[:len(before)-1:len(before)-1], event[end:]...)
	}
	if after := blank(event, end); event[after] == ',' {
		return append(event[:begin:begin], event[blank(event, after+1):]...)
	}
	return event
}

// blank returns where the spaces end that begin at a place.
func blank(p []byte, at int) int {
	for at < len(p)-1 && p[at] == ' ' {
		at++
	}
	return at
}

// take adds what was found to the usage, and reports whether that was any.
func (m *Meter) take() bool {
	raw, within, unfinished := m.find.captured, m.find.within, m.find.unfinished
	if len(raw) == 0 && m.Stream || !m.Stream && m.find.depth > 0 {
		m.find.reset(m.Stream)
		return false
	}
	m.find.reset(m.Stream)
	before := m.found
	if len(raw) == 0 || json.Unmarshal(raw, &m.found) != nil {
		return false
	}
	// What is null was said before, or is not known.
	m.found.keep(&before)
	// The beginning of a message tells only its input.
	m.last = within != "message" && !unfinished
	return true
}

// usage is what providers write of usage, each in its own words.
type usage struct {
	Prompt        *int64  `json:"prompt_tokens"`
	Completion    *int64  `json:"completion_tokens"`
	PromptDetails details `json:"prompt_tokens_details"`
	Input         *int64  `json:"input_tokens"`
	Output        *int64  `json:"output_tokens"`
	InputDetails  details `json:"input_tokens_details"`
	CacheRead     int64   `json:"cache_read_input_tokens"`
	CacheCreation int64   `json:"cache_creation_input_tokens"`
}

// keep takes over from an earlier usage what this one does not say.
func (u *usage) keep(before *usage) {
	for _, n := range [...]struct{ now, before **int64 }{
		{&u.Prompt, &before.Prompt}, {&u.Completion, &before.Completion}, {&u.Input, &before.Input}, {&u.Output, &before.Output},
	} {
		if *n.now == nil {
			*n.now = *n.before
		}
	}
}

type details struct {
	Cached int64 `json:"cached_tokens"`
}

// Usage returns what the call has used, as far as the answer says it, with no Model. complete says
// that the provider has said all of it; otherwise only the input may be known.
func (m *Meter) Usage() (u models.Usage, complete bool) {
	f := &m.found
	in, out := f.Prompt, f.Completion
	switch m.protocol {
	case Responses, Messages:
		in, out = f.Input, f.Output
	case Embeddings:
		if none := int64(0); out == nil {
			out = &none
		}
	}
	if in == nil {
		return u, false
	}
	switch u.Input = *in; m.protocol {
	case Messages:
		u.CachedInput, u.CacheWrite = f.CacheRead, f.CacheCreation
		u.Input += u.CachedInput + u.CacheWrite
	case Responses:
		u.CachedInput = f.InputDetails.Cached
	default:
		u.CachedInput = f.PromptDetails.Cached
	}
	if out != nil {
		u.Output = *out
	}
	for _, n := range [...]int64{*in, u.Input, u.CachedInput, u.CacheWrite, u.Output, u.Input - u.CachedInput - u.CacheWrite} {
		if n < 0 || n > models.MaxTokens {
			return models.Usage{}, false // No call uses that.
		}
	}
	return u, out != nil && m.last && (m.ended || m.Stream && m.protocol == Responses)
}

// finder finds the usage in a value of JSON that comes in pieces, in memory of a fixed size.
type finder struct {
	began     bool // something has come
	noChoices bool // there is a list of choices, which is empty
	captured  []byte
	within    string // "", "response" or "message": what the usage is in
	// unfinished says that the response is still in progress, so its usage is not all.
	unfinished bool

	depth     int
	inText    bool
	escaped   bool
	word      [16]byte // the text, if it is short
	length    int      // of the text
	keys      [3]string
	capturing int // the depth of what is captured; 0 is nothing
	last      byte
}

// reset forgets a value. A value that is no event may come in further pieces.
func (f *finder) reset(event bool) {
	if event {
		*f = finder{captured: f.captured[:0]}
	}
}

func (f *finder) feed(p []byte) {
	for _, c := range p {
		if f.capturing > 0 && len(f.captured) < maxUsage {
			f.captured = append(f.captured, c)
		}
		if f.inText {
			f.feedText(c)
			continue
		}
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '"':
			f.inText, f.length = true, 0
		case ':':
			if f.depth < len(f.keys) {
				f.keys[f.depth] = f.name()
			}
		case ',':
			if f.depth < len(f.keys) {
				f.keys[f.depth] = ""
			}
		case '{', '[':
			if c == '{' && f.capturing == 0 && f.isUsage() {
				f.captured, f.capturing = append(f.captured[:0], c), f.depth+1
			}
			if f.depth++; f.depth < len(f.keys) {
				f.keys[f.depth] = ""
			}
		case '}', ']':
			if f.capturing == f.depth {
				f.capturing = 0
			}
			f.noChoices = f.noChoices || c == ']' && f.last == '[' && f.depth == 2 && f.keys[1] == "choices"
			f.depth = max(0, f.depth-1)
		}
		f.began, f.last = true, c
	}
}

func (f *finder) feedText(c byte) {
	switch {
	case f.escaped:
		f.escaped = false
	case c == '\\':
		f.escaped = true
	case c == '"':
		if f.inText = false; f.depth == 2 && f.keys[1] == "response" && f.keys[2] == "status" {
			said := string(f.said())
			f.unfinished = said == "in_progress" || said == "queued"
		}
		return
	}
	if f.length < len(f.word) {
		f.word[f.length] = c
	}
	f.length++
}

// said is the last text, or nil if it is too long to matter.
func (f *finder) said() []byte {
	if f.length > len(f.word) {
		return nil
	}
	return f.word[:f.length]
}

// name returns the text before a colon, if it is one of the keys that matter.
func (f *finder) name() string {
	said := f.said()
	for _, key := range [...]string{"usage", "choices", "response", "message", "status"} {
		if string(said) == key {
			return key
		}
	}
	return ""
}

// isUsage reports whether the object that begins is the usage, and notes what it is within.
func (f *finder) isUsage() bool {
	switch {
	case f.depth == 1 && f.keys[1] == "usage":
		f.within = ""
		return true
	case f.depth == 2 && f.keys[2] == "usage" && (f.keys[1] == "response" || f.keys[1] == "message"):
		f.within = f.keys[1]
		return true
	}
	return false
}
