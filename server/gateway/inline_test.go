package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// talking is an upstream server that does with its connections what talk says, until the test ends. They
// are counted from 0.
func talking(t *testing.T, talk func(n int, c net.Conn, r *bufio.Reader)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(within))
				talk(n, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return "http://" + l.Addr().String()
}

// asked reads a request, and reports whether there was one.
func asked(r *bufio.Reader) bool {
	_, err := http.ReadRequest(r)
	return err == nil
}

// okay is an answer with a text.
func okay(text string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}

// A connection is used again only if it is certain where the answer has ended, and that the server agrees.
func TestConnectionsToServers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		method, answer string
		again          bool
		broken         bool // the client does not get a whole answer
	}{
		"a length":                   {"GET", okay("x"), true, false},
		"a length of zero":           {"GET", okay(""), true, false},
		"chunks":                     {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", true, false},
		"chunks and trailers":        {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-A: b\r\n\r\n", true, false},
		"a length and chunks":        {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", true, false},
		"a folded line":              {"GET", "HTTP/1.1 200 OK\r\nX-A: a\r\n Content-Length: 3\r\nContent-Length: 1\r\n\r\nx", true, false},
		"no content":                 {"GET", "HTTP/1.1 204 No Content\r\n\r\n", true, false},
		"no content with a length":   {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", true, false},
		"not modified":               {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", true, false},
		"HEAD":                       {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, false},
		"OPTIONS":                    {"OPTIONS", okay("x"), true, false},
		"hints":                      {"GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + okay("x"), true, false},
		"a connection that ends":     {"GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", false, false},
		"HTTP/1.0":                   {"GET", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", false, false},
		"HEAD with a body":           {"HEAD", okay("hello"), false, false},
		"no content with a body":     {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", false, false},
		"more than the length":       {"GET", okay("x") + "y", false, false},
		"two answers":                {"GET", okay("x") + okay("forged"), false, false},
		"a size that is none":        {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nzz\r\n", false, true},
		"a signed size":              {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n-1\r\n\r\n", false, true},
		"a size that is too large":   {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n10000000000000000\r\n\r\n", false, true},
		"a chunk longer than it is":  {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n", false, true},
		"an end that is none":        {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX\r\n\r\n", false, true},
		"hints that never end":       {"GET", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100) + "HTTP/1.1 200", false, true},
		"two lengths":                {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", false, true},
		"a signed length":            {"GET", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx", false, true},
		"a change that nobody asked": {"GET", "HTTP/1.1 101 Switching Protocols\r\n\r\n" + okay("forged"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var last atomic.Int64
			g := serveGateway(t, decider(t, nil), to(talking(t, func(n int, c net.Conn, r *bufio.Reader) {
				for first := n == 0; asked(r); first = false {
					last.Store(int64(n))
					if !first {
						_, _ = io.WriteString(c, okay("next"))
						continue
					}
					_, _ = io.WriteString(c, tt.answer)
					if name == "hints that never end" {
						return
					}
				}
			})))
			res := send(t.Context(), t, client(t), tt.method, g.url+"/", nil)
			text, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if broken := err != nil || res.StatusCode == http.StatusBadGateway; broken != tt.broken || len(text) > 1 && !tt.broken {
				t.Errorf("the answer is %s, %q, %v", res.Status, text, err)
			}
			eventually(t, "it has ended", func() bool { return g.counts.inFlight.Load() == 0 })
			if a := get(t, client(t), g.url+"/"); a.text != "next" {
				t.Errorf("the next answer is %q", a.text)
			}
			if again := last.Load() == 0; again != tt.again {
				t.Errorf("the connection is used again: %t, must be %t", again, tt.again)
			}
		})
	}
}

// What comes on an idle connection is not taken for the answer to the next request.
func TestAnswerAheadOfItsRequest(t *testing.T) {
	t.Parallel()
	sent, forge := make(chan struct{}), make(chan struct{})
	g := serveGateway(t, decider(t, nil), to(talking(t, func(n int, c net.Conn, r *bufio.Reader) {
		for asked(r) {
			_, _ = io.WriteString(c, okay(fmt.Sprint(n)))
			if n == 0 {
				<-forge
				_, _ = io.WriteString(c, okay("forged"))
				close(sent)
				asked(r)
				return
			}
		}
	})))
	get(t, client(t), g.url+"/").wants(t, 200)
	close(forge)
	next(t, sent)
	if a := get(t, client(t), g.url+"/"); a.text != "1" {
		t.Errorf("the next answer is %q", a.text)
	}
}

// A server may close an idle connection at any time, even when it has just got a request over it. Clients
// do not notice. Nor does it make the gateway repeat a request over a new connection.
func TestServerThatEndsConnections(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	url := talking(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if asked(r) {
			requests.Add(1)
			_, _ = io.WriteString(c, okay("ok"))
			asked(r)
		}
	})
	g := serveGateway(t, decider(t, nil), to(url))
	c := client(t)
	for range 10 {
		get(t, c, g.url+"/").wants(t, 200)
	}
	if n := g.current.Load().pools[0].targets[0].failures.Load(); n != 0 || requests.Load() != 10 {
		t.Errorf("%d requests were answered, and the target has failed %d times", requests.Load(), n)
	}
	// None of these connections was used before.
	requests.Store(0)
	o := to(talking(t, func(_ int, _ net.Conn, r *bufio.Reader) {
		asked(r)
		requests.Add(1)
	}))
	g = serveGateway(t, decider(t, nil), o)
	get(t, c, g.url+"/").wants(t, 502)
	if n := requests.Load(); n != 1 {
		t.Errorf("the request was sent %d times", n)
	}
}

// A client that leaves ends the request at the server, before the answer and in the middle of it.
func TestClientThatLeavesTheServer(t *testing.T) {
	t.Parallel()
	came, left := make(chan struct{}), make(chan struct{})
	g := serveGateway(t, decider(t, nil), to(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/middle" {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		}
		came <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}).URL))
	for _, path := range []string{"/before", "/middle"} {
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+path, http.NoBody)
			if err == nil {
				var res *http.Response
				if res, err = client(t).Do(r); err == nil {
					_, err = io.ReadAll(res.Body)
					_ = res.Body.Close()
				}
			}
			ended <- err
		}()
		next(t, came)
		leave()
		if err := next(t, ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		next(t, left)
	}
	eventually(t, "no connection is left", func() bool { return connections(g.current.Load().pools[0]) == 0 })
}

// Connections are closed after a while, and few are kept.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, echo).URL)
	o.Upstreams[0].Timeouts.KeepAlive = 20 * time.Millisecond
	g := serveGateway(t, decider(t, nil), o)
	for range 2 {
		get(t, client(t), g.url+"/").wants(t, 200)
		eventually(t, "the connection is closed", func() bool { return connections(g.current.Load().pools[0]) == 0 })
	}

	kept := &inline{transport: &http.Transport{IdleConnTimeout: time.Hour}, idle: make(map[string][]*inlineConn)}
	var closed int
	for range maxIdlePerTarget + 3 {
		here, there := net.Pipe()
		defer there.Close()
		kept.put(&inlineConn{of: kept, address: "a", conn: here})
		if here.SetDeadline(time.Time{}) != nil {
			closed++
		}
	}
	if closed != 3 || len(kept.idle["a"]) != maxIdlePerTarget {
		t.Errorf("%d are kept, and %d were closed", len(kept.idle["a"]), closed)
	}
	// The oldest are closed first, and the timer runs while others are left.
	for i, c := range kept.idle["a"][:200] {
		c.since = c.since.Add(-time.Duration(400-i) * time.Minute)
	}
	old := kept.idle["a"][0].conn
	if kept.reap(); len(kept.idle["a"]) != maxIdlePerTarget-200 || kept.reaper == nil || old.SetDeadline(time.Time{}) == nil {
		t.Errorf("%d are left, and the timer is %v", len(kept.idle["a"]), kept.reaper)
	}
	for _, c := range kept.idle["a"] {
		c.since = c.since.Add(-2 * time.Hour)
	}
	if kept.reap(); len(kept.idle["a"]) != 0 || kept.reaper != nil {
		t.Errorf("%d are left, and the timer is %v", len(kept.idle["a"]), kept.reaper)
	}

	here, there := net.Pipe()
	defer there.Close()
	kept.put(&inlineConn{of: kept, address: "a", conn: here})
	kept.close()
	if here.SetDeadline(time.Time{}) == nil || kept.pop("a") != nil {
		t.Error("one is open")
	}
	here, there = net.Pipe()
	defer there.Close()
	if kept.put(&inlineConn{of: kept, address: "a", conn: here}); here.SetDeadline(time.Time{}) == nil {
		t.Error("one is kept after the end")
	}
}
