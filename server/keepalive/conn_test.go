package keepalive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestLeavesAndReturns: what is not plain is answered by net/http, and so are some requests after
// it. Then the connection is on standby again.
func TestLeavesAndReturns(t *testing.T) {
	p := start(t, tell)
	c := p.dial(t)
	c.settled(p, first)
	for _, leave := range []func(){
		func() { // in pieces
			text := post("pieces")
			before := p.accepted.Load()
			c.write(text[:20])
			p.waitAccepted(t, before)
			c.write(text[20:])
			c.told("pieces")
		},
		func() { // several at once
			c.write(post("one") + post("two") + post("three"))
			c.told("one")
			c.told("two")
			c.told("three")
		},
		func() { c.asks("GET /else HTTP/1.1\r\nHost: x\r\n\r\n", "") },
		func() { c.asks(post("2", "content-length: 1"), "2") },
		func() {
			c.asks("POST /v1/check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "abc")
		},
		func() { c.asks(post(strings.Repeat("z", 2*most)), strings.Repeat("z", 2*most)) },
		func() {
			c.write(strings.TrimSuffix(post("late", "Expect: 100-continue"), "late"))
			if line, err := c.r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
				t.Fatal(line, err)
			}
			if _, err := c.r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			c.write("late")
			c.told("late")
		},
	} {
		leave()
		c.returns(p, again)
		for range again {
			c.asks(post("x"), "x")
		}
	}
	// Who leaves often returns less often.
	for _, penalty := range []int{again, 2 * again, 4 * again} {
		c.asks("GET /else HTTP/1.1\r\nHost: x\r\n\r\n", "")
		c.returns(p, penalty)
	}
}

// returns has net/http answer plain requests until the connection is on standby again, after penalty of
// them. What made it leave may have been of them.
func (c *client) returns(p *peer, penalty int) {
	c.Helper()
	before := p.standby.Load()
	n := 0
	for ; p.standby.Load() == before; n++ {
		c.asks(post("again"), "again")
	}
	// The last of them was answered on standby, and the one before by both.
	if n -= 2; n < penalty-3 || n > penalty {
		c.Fatalf("the connection is on standby again after %d requests", n)
	}
}

// TestRequestsAreFresh: what a handler sets of a request is gone when the next one comes. Programs
// set the body of a request to bound it, and its form when they parse it.
func TestRequestsAreFresh(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		tell(w, r)
		r.Body = http.MaxBytesReader(w, r.Body, 1)
		r.Form, r.Method, r.Pattern, r.Host = url.Values{"a": {"b"}}, http.MethodPut, "/", "other"
		r.URL, r.Header, r.ContentLength, r.Close = new(url.URL), http.Header{"X": {"y"}}, -1, true
		r.SetPathValue("name", "value")
	})
	c := p.dial(t)
	c.settled(p, first)
	var want string
	for i := range 3 {
		before := p.standby.Load()
		c.write(post("a body of more than one byte"))
		_, got := c.answer()
		if p.standby.Load() != before+1 {
			t.Fatal("net/http has answered")
		}
		if i == 0 {
			want = got
		}
		if got != want || !strings.Contains(got, "more than one byte") {
			t.Errorf("request %d is seen as %q, want %q", i, got, want)
		}
	}
}

// TestNewlines: old clients send a newline after the body of a POST.
func TestNewlines(t *testing.T) {
	p := start(t, tell)
	c := p.dial(t)
	c.settled(p, first)
	for range 3 {
		before := p.standby.Load()
		c.write("\r\n")
		c.asks("\r\n"+post("x"), "x")
		c.asks(post("y"), "y")
		if p.standby.Load() != before+2 {
			t.Fatal("the connection has left")
		}
	}
}

// TestIdle: connections that wait have no goroutine, and are closed when they have waited too long.
func TestIdle(t *testing.T) {
	p := start(t, tell)
	p.dial(t).settled(p, first)
	before := runtime.NumGoroutine()
	for range 100 {
		p.dial(t).settled(p, first)
	}
	for deadline := time.Now().Add(2 * time.Minute); runtime.NumGoroutine() > before+20; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there are %d goroutines, and were %d before 100 connections", runtime.NumGoroutine(), before)
		}
	}

	q := startIdle(t, tell, 100*time.Millisecond)
	var c *client
	for q.standby.Load() == 0 { // On a busy machine, it may be closed before.
		c = q.dial(t)
		for range first + 2 {
			if _, err := io.WriteString(c, post("x")); err != nil {
				break
			}
			response, err := http.ReadResponse(c.r, nil)
			if err != nil {
				break
			}
			_, _ = io.Copy(io.Discard, response.Body) // The next answer would not be read.
			_ = response.Body.Close()
		}
	}
	c.ended()
}

// TestClosed: after the answer that says so the connection is closed, and the answer arrives.
func TestClosed(t *testing.T) {
	large := strings.Repeat("large ", 1<<20)
	for name, h := range map[string]http.HandlerFunc{
		"by the handler": func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); string(body) == "last" {
				w.Header().Set("Connection", "close")
			}
			_, _ = io.WriteString(w, large)
		},
		"by a panic": func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); string(body) == "last" {
				panic("as the test wants it")
			}
			_, _ = io.WriteString(w, large)
		},
		"by an abort": func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); string(body) == "last" {
				_, _ = io.WriteString(w, "never sent")
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, large)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, h)
			c := p.dial(t)
			// So large an answer is not taken at once. The connection is on standby after it, though.
			for range 4 {
				c.write(post("x"))
				if _, text := c.answer(); text != large {
					t.Fatalf("the answer has %d bytes", len(text))
				}
			}
			before := p.standby.Load()
			if before < 2 {
				t.Fatalf("%d requests were answered on standby", before)
			}
			c.write(post("last"))
			if name == "by the handler" {
				if response, text := c.answer(); !response.Close || text != large {
					t.Fatalf("close %t, %d bytes", response.Close, len(text))
				}
			}
			c.ended()
			if p.standby.Load() != before+1 {
				t.Error("the last request was not answered on standby")
			}
			if logged := strings.Contains(p.logged.String(), "as the test wants it"); logged != (name == "by a panic") {
				t.Errorf("logged: %s", p.logged)
			}
		})
	}
}

// TestGone: the other end goes at any time.
func TestGone(t *testing.T) {
	p := start(t, tell)
	for range 20 {
		c := p.dial(t)
		c.settled(p, first)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c = p.dial(t)
		c.settled(p, first)
		c.write(post("x")[:30]) // It ends within a request.
		if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(c.r); err != nil || len(rest) > 0 && !bytes.HasPrefix(rest, []byte("HTTP/1.1 400 ")) {
			t.Fatalf("%q, %v", rest, err)
		}
	}
	c := p.dial(t)
	c.settled(p, first)
}

// TestShutdown: connections that are idle are closed, and a request that is being answered is
// waited for, whoever answers it.
func TestShutdown(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != instantly {
			entered <- struct{}{}
			<-release
		}
		tell(w, r)
	})
	idle, busy := p.dial(t), p.dial(t)
	idle.settled(p, first)
	busy.settled(p, first)
	busy.write(strings.Replace(post("slow"), instantly, "/slow", 1))
	<-entered
	ended := make(chan error, 1)
	go func() { ended <- p.Shutdown(context.Background()) }()
	idle.ended()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("it has not waited: %v", err)
	default:
	}
	close(release)
	if _, text := busy.answer(); !strings.Contains(text, `body "slow"`) {
		t.Error(text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestCut: Close ends what is being sent to somebody who does not read.
func TestCut(t *testing.T) {
	large := strings.Repeat("large ", 4<<20)
	p := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, large) })
	for requests := range 3 {
		c := p.dial(t)
		for range requests {
			c.write(post("x"))
			c.answer()
		}
		c.write(post("x"))
		if _, err := c.r.Peek(1); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
