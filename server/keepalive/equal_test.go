package keepalive

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// script is a connection over which in arrives, and then the end.
type script struct {
	net.Conn
	in    *bytes.Reader
	out   bytes.Buffer
	ended chan struct{}
}

func (s *script) Read(b []byte) (int, error)       { return s.in.Read(b) }
func (s *script) Write(b []byte) (int, error)      { return s.out.Write(b) }
func (s *script) Close() error                     { close(s.ended); return nil }
func (s *script) RemoteAddr() net.Addr             { return new(net.TCPAddr) }
func (s *script) LocalAddr() net.Addr              { return new(net.TCPAddr) }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// scripts is a listener for them.
type scripts struct {
	net.Listener
	conns chan net.Conn
}

func (s *scripts) Accept() (net.Conn, error) {
	if nc, ok := <-s.conns; ok {
		return nc, nil
	}
	return nil, net.ErrClosed
}
func (s *scripts) Close() error   { return nil }
func (s *scripts) Addr() net.Addr { return new(net.TCPAddr) }

// both answers requests by net/http, and on standby.
type both struct {
	server *Server
	conns  chan net.Conn
}

// otherwise is the path of other requests over the same connection.
const otherwise = "/other"

func newBoth(tb testing.TB, h http.HandlerFunc) *both {
	tb.Helper()
	b := &both{New(&http.Server{Handler: h}, isInstant), make(chan net.Conn)}
	plain := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == otherwise {
			w.Header().Set("X-Other", "x")
			return
		}
		h(w, r)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = plain.Serve(&scripts{conns: b.conns}) // It says that the listener is closed.
	}()
	tb.Cleanup(func() {
		close(b.conns)
		<-ended
	})
	return b
}

// standby returns the answer on standby, or ok false if the request is left to net/http.
func (b *both) standby(t *testing.T, data []byte) (answer []byte, last, ok bool) {
	t.Helper()
	c := &conn{server: b.server, remote: "192.0.2.1:80"}
	answer, stay := c.Arrived(data, []byte("before"))
	answer, cut := bytes.CutPrefix(answer, []byte("before"))
	if !cut {
		t.Fatalf("what stood there before is gone: %q", answer)
	}
	if !stay && !c.last {
		rest := data[newlines(data):]
		if len(answer) > 0 || !bytes.Equal(c.rest, rest) {
			t.Fatalf("it leaves %q with %q answered and the rest %q", data, answer, c.rest)
		}
		return nil, false, false
	}
	return answer, c.last, true
}

// netHTTP returns what net/http answers between two other requests, and whether the connection
// ends after it. Net/http knows then that a POST was before it, as it always is on standby.
func (b *both) netHTTP(t *testing.T, data []byte) (answer []byte, last bool) {
	t.Helper()
	other := []byte(strings.Replace(with(""), instantly, otherwise, 1))
	s := &script{in: bytes.NewReader(bytes.Join([][]byte{other, data, other}, nil)), ended: make(chan struct{})}
	b.conns <- s
	<-s.ended
	parts := bytes.Split(s.out.Bytes(), []byte("HTTP/1.1 200 OK\r\nX-Other: x\r\n"))
	if len(parts) < 2 || len(parts) > 3 || len(parts[0]) > 0 {
		t.Fatalf("net/http answers %q", s.out.Bytes())
	}
	_, body, _ := bytes.Cut(parts[1], []byte("\r\n\r\n"))
	return body, len(parts) == 2
}

// compare wants both answers to be the same, and reports whether there was one on standby.
func (b *both) compare(t *testing.T, data []byte) bool {
	t.Helper()
	answer, last, ok := b.standby(t, data)
	if !ok {
		return false
	}
	if len(answer) == 0 {
		return true // newlines
	}
	want, wantLast := b.netHTTP(t, data)
	got1, body1, left1, err1 := parse(answer)
	got2, body2, left2, err2 := parse(want)
	if err1 != nil || err2 != nil {
		if (err1 == nil) != (err2 == nil) {
			t.Fatalf("%q\nis answered on standby by %q: %v\nby net/http %q: %v", data, answer, err1, want, err2)
		}
		return true
	}
	if left1 != "" || left2 != "" || body1 != body2 || got1.Status != got2.Status || got1.Proto != got2.Proto || len(got1.Header["Date"]) != len(got2.Header["Date"]) || last != wantLast {
		t.Fatalf("%q\nis answered on standby by %q\nby net/http %q", data, answer, want)
	}
	for _, h := range []http.Header{got1.Header, got2.Header} {
		if _, err := http.ParseTime(h.Get("Date")); err == nil {
			delete(h, "Date") // The second may have passed meanwhile.
		}
		delete(h, "Content-Length") // The body was compared, and might be in chunks.
	}
	if !maps.EqualFunc(got1.Header, got2.Header, func(a, b []string) bool { return reflect.DeepEqual(a, b) }) {
		t.Fatalf("%q\nis answered on standby by %q\nby net/http %q", data, answer, want)
	}
	return true
}

// parse reads an answer as a client does, and what stands behind it.
func parse(text []byte) (_ *http.Response, body, left string, err error) {
	r := bufio.NewReader(bytes.NewReader(text))
	response, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
	if err != nil {
		return nil, "", "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, "", "", err
	}
	rest, err := io.ReadAll(r)
	return response, string(b), string(rest), err
}

// with is a plain request with further lines among its headers.
func with(lines string) string {
	return "POST /v1/check HTTP/1.1\r\nHost: h\r\n" + lines + "Content-Length: 3\r\n\r\nabc"
}

// requests says of requests whether they can be answered on standby.
var requests = []struct {
	text  string
	plain bool
}{
	{post("{}"), true},
	{post("{}", "Connection: keep-alive", "User-Agent: Go-http-client/1.1", "Accept-Encoding: gzip", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), true},
	{post("{}", "connection: Keep-Alive", "accept:*/*", "X-Empty:", "X_Under:  two words  "), true},
	{strings.Replace(post("{}"), "/v1/check ", "/v1/check?status=true&at=true ", 1), true},
	{strings.Replace(post("{}"), "/v1/check ", "/v1/check?a?b=& ", 1), true},
	{"\r\n\r\n" + post("{}"), true},
	{with(""), true},
	{with("Host2: x\r\n"), true},
	{with("A: b\r\n"), true},
	{strings.Replace(with(""), "Host: h", "HOST: [::1]:80", 1), true},

	// It is not there as a whole, or more than that.
	{"", true}, // nothing but nothing
	{"\r", true},
	{"P", false},
	{"POST /v1/check HTTP/1.1\r\n", false},
	{strings.TrimSuffix(with(""), "c"), false},
	{with("") + "d", false},
	{with("") + "\r\n", false},
	{with("") + with(""), false},
	{"\r\n\r\n\r\n" + with(""), false},
	{" " + with(""), false},

	// Other requests.
	{"GET /v1/check HTTP/1.1\r\nHost: h\r\n\r\n", false},
	{strings.Replace(with(""), "POST", "post", 1), false},
	{strings.Replace(with(""), "POST", "PUT", 1), false},
	{strings.Replace(with(""), "POST ", "POST  ", 1), false},
	{strings.Replace(with(""), "/1.1", "/1.0", 1), false},
	{strings.Replace(with(""), "/1.1", "/1.2", 1), false},
	{strings.Replace(with(""), "HTTP/1.1", "http/1.1", 1), false},
	{strings.Replace(with(""), " HTTP/1.1", "", 1), false},
	{strings.Replace(with(""), " HTTP/1.1", "\tHTTP/1.1", 1), false},
	{strings.Replace(with(""), "HTTP/1.1\r\n", "HTTP/1.1\n", 1), false},
	{strings.Replace(with(""), "/v1/check", "/v1/other", 1), false},
	{strings.Replace(with(""), "/v1/check", "/v1/check/", 1), false},
	{strings.Replace(with(""), "/v1/check", "//v1/check", 1), false},
	{strings.Replace(with(""), "/v1/check", "/v1/%63heck", 1), false},
	{strings.Replace(with(""), "/v1/check", "/v1/check?", 1), false},
	{strings.Replace(with(""), "/v1/check", "/v1/check?a=%20", 1), false},
	{strings.Replace(with(""), "/v1/check", "/v1/check#a", 1), false},
	{strings.Replace(with(""), "/v1/check", "/v1/check;a", 1), false},
	{strings.Replace(with(""), "/v1/check", "/v1/x/../check", 1), false},
	{strings.Replace(with(""), "/v1/check", "http://h/v1/check", 1), false},
	{strings.Replace(with(""), "/v1/check", "*", 1), false},
	{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false},
	{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", false},

	// How long the body is, or where it begins, could be understood in two ways.
	{with("Content-Length: 3\r\n"), false},
	{with("content-length: 4\r\n"), false},
	{with("Transfer-Encoding: chunked\r\n"), false},
	{with("transfer-encoding: identity\r\n"), false},
	{with("Transfer-Encoding : chunked\r\n"), false},
	{with(" Transfer-Encoding: chunked\r\n"), false},
	{with("X: a\r\n Transfer-Encoding: chunked\r\n"), false},
	{with("X: a\r\n\tfolded\r\n"), false},
	{with("X: a\nTransfer-Encoding: chunked\r\n"), false},
	{with("X: a\rTransfer-Encoding: chunked\r\n"), false},
	{with("X: a\x00b\r\n"), false},
	{with("X: a\tb\r\n"), false},
	{with("X: caf\xc3\xa9\r\n"), false},
	{with("X\r\n"), false},
	{with(": x\r\n"), false},
	{with("X Y: z\r\n"), false},
	{with("X(Y): z\r\n"), false},
	{with("X: 1\r\nx: 2\r\n"), false},
	{strings.Replace(with(""), "Content-Length: 3", "Content-Length: +3", 1), false},
	{strings.Replace(with(""), "Content-Length: 3", "Content-Length: 03", 1), false},
	{strings.Replace(with(""), "Content-Length: 3", "Content-Length: 0x3", 1), false},
	{strings.Replace(with(""), "Content-Length: 3", "Content-Length: 3, 3", 1), false},
	{strings.Replace(with(""), "Content-Length: 3", "Content-Length: -3", 1), false},
	{strings.Replace(with(""), "Content-Length: 3", "Content-Length:", 1), false},
	{strings.Replace(with(""), "Content-Length: 3", "Content-Length: 99999999999999999999", 1), false},
	{strings.Replace(with(""), "Content-Length: 3", "X: 3", 1), false},
	{"POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", false},

	// Headers that change what net/http does.
	{with("Connection: close\r\n"), false},
	{with("Connection: keep-alive, close\r\n"), false},
	{with("Connection: keep-alive, upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"), false},
	{with("Upgrade: websocket\r\n"), false},
	{with("Expect: 100-continue\r\n"), false},
	{with("Trailer: X\r\n"), false},
	{with("Te: trailers\r\n"), false},
	{with("Pragma: no-cache\r\n"), false},
	{with("Host: h\r\n"), false},
	{strings.Replace(with(""), "Host: h\r\n", "", 1), false},
	{strings.Replace(with(""), "Host: h", "Host:", 1), false},
	{strings.Replace(with(""), "Host: h", "Host: a/b", 1), false},
	{strings.Replace(with(""), "Host: h", "Host: user@h", 1), false},

	// There is too much of it.
	{with(strings.Repeat("A", most) + ": x\r\n"), false},
	{with(manyHeaders(mostHeaders - 2)), true},
	{with(manyHeaders(mostHeaders - 1)), false},
	{post(strings.Repeat("x", most)), false},
}

func manyHeaders(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("X-" + strings.Repeat("a", i) + ": x\r\n")
	}
	return b.String()
}

// TestRequests: what is answered on standby is answered as by net/http, and the rest is left to it.
func TestRequests(t *testing.T) {
	b := newBoth(t, tell)
	for _, tt := range requests {
		if plain := b.compare(t, []byte(tt.text)); plain != tt.plain {
			t.Errorf("%q: on standby %t, want %t", tt.text, plain, tt.plain)
		}
	}
}

// FuzzRequests: whatever arrives, the handler sees on standby what it sees in net/http, and the
// client gets the same answer.
func FuzzRequests(f *testing.F) {
	for _, tt := range requests {
		f.Add([]byte(tt.text))
	}
	b := newBoth(f, tell)
	f.Fuzz(func(t *testing.T, data []byte) { b.compare(t, data) })
}

// FuzzAnswers: whatever a handler answers, it arrives as from net/http.
func FuzzAnswers(f *testing.F) {
	f.Add(200, "Content-Type", "application/json", "X-RateLimit-Limit", "100, 100;w=60", `{"allowed":true}`)
	f.Add(429, "Retry-After", "3", "Warning", "x\r\nConnection: close", "no")
	f.Add(503, "Connection", "close", "Content-Type", "application/problem+json", "{}")
	f.Add(413, "Connection", "keep-alive", "Connection", " close", "")
	f.Add(0, "", "x", "Bad Name", "x", "<html>")
	f.Add(299, "Date", "yesterday", "Content-Length", "7", "a body of another length")
	f.Add(599, "Content-Encoding", "gzip", "X-Tab", "\ta\tb\t", "\x1f\x8b\x08")
	f.Add(418, "content-type", "text/plain", "x-Lower", "a  ", strings.Repeat("long ", 1000))
	type given struct {
		status                             int
		name1, value1, name2, value2, body string
	}
	var g given
	b := newBoth(f, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()[g.name1] = []string{g.value1}
		w.Header()[g.name2] = append(w.Header()[g.name2], g.value2)
		if g.status != 0 {
			w.WriteHeader(g.status)
		}
		w.Header().Set("X-Late", "is not sent")
		half := len(g.body) / 2
		_, _ = io.WriteString(w, g.body[:half]) // It would be missing.
		_, _ = io.WriteString(w, g.body[half:])
	})
	f.Fuzz(func(t *testing.T, status int, name1, value1, name2, value2, body string) {
		if status != 0 && (status < 200 || status > 999 || status == 204 || status == 304) {
			return // It has no body.
		}
		for _, name := range []string{name1, name2} {
			switch strings.ToLower(name) {
			case "transfer-encoding", "trailer", "content-length":
				return // The bodies of these are net/http's alone.
			}
			if strings.HasPrefix(name, http.TrailerPrefix) {
				return
			}
		}
		g = given{status, name1, value1, name2, value2, body}
		if !b.compare(t, []byte(post("x"))) {
			t.Fatal("a plain request is left to net/http")
		}
	})
}
