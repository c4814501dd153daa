package keepalive

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
)

const (
	// most bounds a request that is answered on standby, in bytes: others wait meanwhile.
	most = 8 << 10
	// mostHeaders bounds its headers.
	mostHeaders = 32
)

// exchange is a request on standby and its answer. It is used again for others.
type exchange struct {
	request *http.Request
	blank   http.Request // what request is before it is read
	url     url.URL
	values  [mostHeaders]string // of the headers
	body    strings.Reader
	answer  answer
}

func newExchange(of *http.Server) *exchange {
	e := new(exchange)
	// Nobody waits for anything, so that the context need not end with the connection.
	ctx := context.WithValue(context.Background(), http.ServerContextKey, of)
	e.request = (&http.Request{
		Method: http.MethodPost, URL: &e.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: io.NopCloser(&e.body),
	}).WithContext(ctx)
	e.blank = *e.request
	return e
}

// reset forgets the texts, and what the handler has set of the request: many replace its Body, to
// bound it for instance, and Form is kept in it once it was parsed.
func (e *exchange) reset() {
	*e.request = e.blank
	clear(e.request.Header)
	clear(e.values[:])
	e.url = url.URL{}
	e.body.Reset("")
	e.answer.reset()
}

// read reads data as one request, with the result that net/http would have. It reports false if
// data is anything but one whole request in the plain form that clients send.
func (e *exchange) read(data []byte, instant func(path string) bool) bool {
	const method, version = "POST ", " HTTP/1.1\r\n"
	if len(data) > most || len(data) < len(method) || string(data[:len(method)]) != method {
		return false
	}
	text := string(data) // All that is read of it shares this memory.
	target, rest, ok := strings.Cut(text[len(method):], version)
	if !ok || !e.readTarget(target) || !instant(e.url.Path) {
		return false
	}
	clear(e.request.Header)
	length, host := -1, ""
	for n := 0; ; n++ {
		line, more, ok := strings.Cut(rest, "\r\n")
		if !ok {
			return false
		}
		rest = more
		if line == "" {
			break
		}
		name, value, ok := readHeader(line)
		if !ok || n == mostHeaders {
			return false
		}
		switch name {
		case "Host":
			if host != "" || !isHost(value) {
				return false
			}
			host = value
			continue
		case "Content-Length":
			if length = readLength(value); length < 0 {
				return false
			}
		case "Connection":
			if !strings.EqualFold(value, "keep-alive") {
				return false
			}
		case "Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Te", "Http2-Settings",
			"Pragma": // Net/http makes a Cache-Control of it.
			return false
		}
		if _, twice := e.request.Header[name]; twice {
			return false
		}
		e.values[n] = value
		e.request.Header[name] = e.values[n : n+1 : n+1]
	}
	if host == "" || length != len(rest) {
		return false
	}
	r := e.request
	r.Host, r.RequestURI, r.ContentLength = host, target, int64(length)
	e.body.Reset(rest)
	return true
}

// readTarget reads what stands between method and version: a path and perhaps a query, without
// anything that has a meaning in URLs.
func (e *exchange) readTarget(target string) bool {
	for i := range len(target) {
		if c := target[i]; !isAlphanumeric(c) && !strings.ContainsRune("/-_.?=&", rune(c)) {
			return false
		}
	}
	path, query, questioned := strings.Cut(target, "?")
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || questioned && query == "" {
		return false
	}
	e.url = url.URL{Path: path, RawQuery: query}
	return true
}

// readHeader reads a line, and returns the name in the form that [http.Header] has.
func readHeader(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, ":")
	if !ok || name == "" {
		return "", "", false
	}
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && c != '-' && c != '_' {
			return "", "", false
		}
	}
	value = strings.Trim(value, " ")
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' {
			return "", "", false
		}
	}
	return http.CanonicalHeaderKey(name), value, true
}

// isHost reports whether a Host is one of letters, digits and what stands between them.
func isHost(value string) bool {
	for i := range len(value) {
		if c := value[i]; !isAlphanumeric(c) && !strings.ContainsRune(".-_:[]", rune(c)) {
			return false
		}
	}
	return value != ""
}

// readLength reads a Content-Length, or returns -1.
func readLength(value string) int {
	if len(value) == 0 || len(value) > 4 || value[0] == '0' {
		return -1
	}
	n := 0
	for i := range len(value) {
		c := value[i]
		if c < '0' || c > '9' {
			return -1
		}
		n = 10*n + int(c-'0')
	}
	return n
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
