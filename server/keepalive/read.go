package keepalive

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
)

const (
	// most is the maximum size of a request that is answered on standby, in bytes. It is small because
	// the other connections of the same loop wait meanwhile.
	most = 8 << 10
	// mostHeaders is the maximum number of headers in such a request.
	mostHeaders = 32
)

// exchange is a request on standby and its answer. Exchanges are pooled and reused.
type exchange struct {
	request *http.Request
	blank   http.Request // the request's initial state, which reset restores
	url     url.URL
	values  [mostHeaders]string // header values, one for each header
	body    strings.Reader
	answer  answer
}

func newExchange(of *http.Server) *exchange {
	e := new(exchange)
	// The handler waits for nothing, so its context need not end with the connection.
	ctx := context.WithValue(context.Background(), http.ServerContextKey, of)
	e.request = (&http.Request{
		Method: http.MethodPost, URL: &e.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: io.NopCloser(&e.body),
	}).WithContext(ctx)
	e.blank = *e.request
	return e
}

// reset clears the request and the answer, and undoes what the handler has changed in the request.
// Many handlers replace Body, for instance to limit its size, and ParseForm fills Form.
func (e *exchange) reset() {
	*e.request = e.blank
	clear(e.request.Header)
	clear(e.values[:])
	e.url = url.URL{}
	e.body.Reset("")
	e.answer.reset()
}

// read parses data as one request, with the same result as net/http. It reports false if data is
// anything but exactly one complete request in the plain form.
func (e *exchange) read(data []byte, instant func(path string) bool) bool {
	const method, version = "POST ", " HTTP/1.1\r\n"
	if len(data) > most || len(data) < len(method) || string(data[:len(method)]) != method {
		return false
	}
	text := string(data) // The strings below share this memory.
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
			"Pragma": // Net/http may add a Cache-Control for it.
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

// readTarget parses the request target: a path and optionally a query, without escapes or other
// characters that URLs give a special meaning.
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

// readHeader parses a header line, and returns the name in canonical form, as [http.Header] has it.
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

// isHost reports whether a Host header is not empty and has only letters, digits and the
// punctuation of host names, IP addresses and ports.
func isHost(value string) bool {
	for i := range len(value) {
		if c := value[i]; !isAlphanumeric(c) && !strings.ContainsRune(".-_:[]", rune(c)) {
			return false
		}
	}
	return value != ""
}

// readLength parses a Content-Length from 1 to 9999 without leading zeros. It returns -1 for
// anything else.
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
