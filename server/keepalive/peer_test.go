package keepalive

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// instantly is the path whose requests are answered at once.
const instantly = "/v1/check"

func isInstant(path string) bool { return path == instantly }

// tell answers with all that a handler can see of a request, but for what differs from connection
// to connection.
func tell(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %q %+v %s %d.%d host %q length %d close %t trailer %v encoding %v form %v tls %v pattern %q body %q %v\n", r.Method, r.RequestURI, *r.URL,
		r.Proto, r.ProtoMajor, r.ProtoMinor, r.Host, r.ContentLength, r.Close, r.Trailer, r.TransferEncoding, r.Form, r.TLS, r.Pattern, body, err)
	names := make([]string, 0, len(r.Header))
	for name := range r.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%q: %q\n", name, r.Header[name])
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // The answer would be missing.
}

// peer is a server under test. It counts the requests that were answered on standby.
type peer struct {
	*Server
	addr    string
	standby atomic.Int64
	// accepted counts the connections that net/http has got, whether new or back.
	accepted atomic.Int64
	logged   *lines
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start serves h until the test ends. An idle connection is closed after an hour.
func start(t testing.TB, h http.HandlerFunc) *peer { return startIdle(t, h, time.Hour) }

func startIdle(t testing.TB, h http.HandlerFunc, idle time.Duration) *peer {
	t.Helper()
	p := &peer{logged: new(lines)}
	p.Server = New(&http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Context().Value(connKey{}) == nil {
				p.standby.Add(1)
			}
			h(w, r)
		}),
		ReadHeaderTimeout: time.Minute, IdleTimeout: idle, WriteTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(slog.NewTextHandler(p.logged, nil), slog.LevelWarn),
		ConnState: func(_ net.Conn, of http.ConnState) {
			if of == http.StateNew {
				p.accepted.Add(1)
			}
		},
	}, isInstant)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return p
}

// waitAccepted waits until net/http has got more connections than before.
func (p *peer) waitAccepted(t *testing.T, before int64) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); p.accepted.Load() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection has not been given back")
		}
	}
}

// client is a connection to a server.
type client struct {
	testing.TB
	net.Conn
	r *bufio.Reader
}

func (p *peer) dial(t testing.TB) *client {
	t.Helper()
	nc, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &client{t, nc, bufio.NewReader(nc)}
}

func (c *client) write(text string) {
	c.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.Fatal(err)
	}
}

// answer reads an answer and its body.
func (c *client) answer() (*http.Response, string) {
	c.Helper()
	response, err := http.ReadResponse(c.r, &http.Request{Method: http.MethodPost})
	if err != nil {
		c.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.Fatal(err)
	}
	return response, string(body)
}

// asks sends a request and wants its body told.
func (c *client) asks(request, body string) {
	c.Helper()
	c.write(request)
	c.told(body)
}

func (c *client) told(body string) {
	c.Helper()
	response, text := c.answer()
	if want := fmt.Sprintf("body %q <nil>\n", body); response.StatusCode != 200 || !strings.Contains(text, want) {
		c.Fatalf("the answer is %d %q, want %s", response.StatusCode, text, want)
	}
}

// ended wants the connection ended by the other end.
func (c *client) ended() {
	c.Helper()
	if n, err := c.r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		c.Fatalf("%d bytes, %v", n, err)
	}
}

// post is a plain request.
func post(body string, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: gate.example\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", instantly, len(body))
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	return b.String() + "\r\n" + body
}

// settled has the connection go on standby.
func (c *client) settled(p *peer, requests int) {
	c.Helper()
	for range requests {
		before := p.standby.Load()
		c.asks(post("x"), "x")
		if p.standby.Load() != before {
			c.Fatal("the connection is on standby already")
		}
	}
	c.asks(post("x"), "x")
	before := p.standby.Load()
	c.asks(post("y"), "y")
	if p.standby.Load() != before+1 {
		c.Fatal("the connection is not on standby")
	}
}
