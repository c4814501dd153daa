package keepalive

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answer is the [http.ResponseWriter] of a request on standby. It writes what net/http writes for
// the same calls, except that it never sends a body in chunks.
type answer struct {
	header http.Header
	status int
	head   []byte   // the status line and the headers as they were at WriteHeader
	names  []string // header names, to sort them; the memory is reused
	typed  bool     // Do not guess the Content-Type: it, or a Content-Encoding, is set.
	dated  bool     // The handler has set a Date.
	last   bool     // The handler has set "Connection: close".
	body   []byte

	second int64 // the Unix time of date
	date   []byte
}

// mostKept is the largest body buffer that is kept for the next answer, in bytes.
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
		return // Like net/http, which only logs it.
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
			continue // appendTo writes the real length.
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

// isName reports whether name is valid for a header. Like net/http, the answer omits headers with
// invalid names.
func isName(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return name != ""
}

// oneLine returns value with line breaks replaced by spaces, because a line break could start a
// header of its own, and without blanks at its ends.
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

// appendTo appends the answer in its wire form. It reports whether the connection must be closed
// after it.
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
