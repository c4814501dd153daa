package keepalive

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answer is the [http.ResponseWriter] of a request on standby. What it writes is what net/http
// writes for the same calls, but that bodies are never sent in chunks.
type answer struct {
	header http.Header
	status int
	head   []byte   // the first line, and the headers as they were then
	names  []string // of the headers; its memory is used again
	typed  bool     // There is a Content-Type, or an encoding that nobody should guess it from.
	dated  bool     // There is a Date.
	last   bool     // The handler wants the connection closed.
	body   []byte

	second int64 // since 1970, of date
	date   []byte
}

// mostKept bounds the memory that is kept for the next body.
const mostKept = 64 << 10

func (a *answer) reset() {
	clear(a.header)
	a.status, a.head, a.typed, a.dated, a.last, a.body = 0, a.head[:0], false, false, false, a.body[:0]
	if cap(a.body) > mostKept {
		a.body = nil
	}
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = make(http.Header)
	}
	return a.header
}

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	if a.status != 0 {
		return // Net/http would only log it.
	}
	a.status = status
	b := strconv.AppendInt(append(a.head[:0], "HTTP/1.1 "...), int64(status), 10)
	b = append(b, ' ')
	if text := http.StatusText(status); text != "" {
		b = append(b, text...)
	} else {
		b = strconv.AppendInt(append(b, "status code "...), int64(status), 10)
	}
	b = append(b, "\r\n"...)
	a.names = a.names[:0]
	for name := range a.header {
		a.names = append(a.names, name)
	}
	slices.Sort(a.names)
	for _, name := range a.names {
		values := a.header[name]
		switch name {
		case "Content-Length":
			continue // It is that of what is written.
		case "Content-Type":
			a.typed = true
		case "Content-Encoding":
			a.typed = a.typed || len(values) > 0 && values[0] != ""
		case "Date":
			a.dated = true
		case "Connection":
			a.last = len(values) > 0 && values[0] == "close"
		}
		if !isName(name) {
			continue
		}
		for _, value := range values {
			b = append(append(b, name...), ": "...)
			b = append(append(b, oneLine(value)...), "\r\n"...)
		}
	}
	a.head = b
}

// isName reports whether a header can have the name; net/http leaves others out.
func isName(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return name != ""
}

// oneLine is the value without newlines, which could begin another header.
func oneLine(value string) string {
	if strings.ContainsAny(value, "\r\n") {
		value = strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
	}
	return strings.Trim(value, " \t")
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.body = append(a.body, b...)
	return len(b), nil
}

// appendTo appends the answer as it goes over the wire. It reports whether the connection is to be
// closed after it.
func (a *answer) appendTo(out []byte) (_ []byte, last bool) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	out = append(out, a.head...)
	if !a.dated {
		now := time.Now()
		if second := now.Unix(); second != a.second || a.date == nil {
			a.second, a.date = second, now.UTC().AppendFormat(a.date[:0], http.TimeFormat)
		}
		out = append(append(append(out, "Date: "...), a.date...), "\r\n"...)
	}
	if !a.typed && len(a.body) > 0 {
		out = append(append(append(out, "Content-Type: "...), http.DetectContentType(a.body)...), "\r\n"...)
	}
	out = strconv.AppendInt(append(out, "Content-Length: "...), int64(len(a.body)), 10)
	return append(append(out, "\r\n\r\n"...), a.body...), a.last
}
