package gateway

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
)

// fronts is how many versions of what servers are told have connections.
func (f *fixture) fronts() int {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	return len(f.server.fronts)
}

// What net/http wants to be told before it serves holds for the next connection, and
// those there are end after their next answer.
func TestReplaceServerOptions(t *testing.T) {
	t.Parallel()
	one, arrived, letGo := held(t, "one")
	o := to(one)
	g := serveGateway(t, decider(t, nil), o)
	large := "X-Large: " + strings.Repeat("a", 16<<10)
	c, busy := client(t), client(t)
	get(t, c, g.url, large).wants(t, 200)
	inProgress := make(chan answer, 1)
	go func() { inProgress <- get(t, busy, g.url+"/held") }()
	next(t, arrived)

	o.MaxHeader = 1 << 10
	g.replace(t, o)
	if a := get(t, c, g.url, large); a.StatusCode != 200 || !a.Close {
		t.Errorf("the connection from before is answered with %s, and closed: %t", a.Status, a.Close)
	}
	get(t, c, g.url, large).wants(t, 431)
	get(t, c, g.url).wants(t, 200)

	for _, change := range []func(*gatewayfile.Clients){
		func(c *gatewayfile.Clients) { c.Header = 10 * time.Millisecond },
		func(c *gatewayfile.Clients) { c.Header, c.Idle = 0, 10*time.Millisecond },
	} {
		o.Clients = gatewayfile.Clients{}
		change(&o.Clients)
		g.replace(t, o)
		// One closes half a request, the other one that has been answered.
		text := "GET / HTTP/1.1\r\nHost: h\r\n"
		if o.Clients.Idle > 0 {
			text += "\r\n"
		}
		var late net.Error
		if _, err := io.Copy(io.Discard, raw(t, g.addr, text)); errors.As(err, &late) && late.Timeout() {
			t.Errorf("with %+v the connection does not end", o.Clients)
		}
	}
	o.Clients, o.MaxHeader = gatewayfile.Clients{}, 0
	g.replace(t, o)
	c.CloseIdleConnections()
	get(t, c, g.url, large).wants(t, 200)
	close(letGo)
	if a := next(t, inProgress); a.text != "one" || a.Close {
		t.Errorf("what was in progress got %q, and is closed: %t", a.text, a.Close)
	}
	eventually(t, "nothing is left of what was told before", func() bool {
		busy.CloseIdleConnections()
		c.CloseIdleConnections()
		o.Clients.Idle = time.Hour - o.Clients.Idle
		g.replace(t, o)
		get(t, c, g.url).wants(t, 200)
		return g.fronts() == 1
	})
}

// Early hints do not keep a connection that is to end, and an upgrade is none that could.
func TestConnectionThatIsToEnd(t *testing.T) {
	t.Parallel()
	shouts := shout(t)
	o := to(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			shouts(w, r)
			return
		}
		w.WriteHeader(http.StatusEarlyHints)
		hello(w, r)
	}).URL)
	o.Upgrades = []string{"shout"}
	g := serveGateway(t, decider(t, nil), o)
	c, later := dial(t, g.addr), dial(t, g.addr)
	// Both have been accepted when they have been answered.
	for i, conn := range []net.Conn{c, later, c, later} {
		text := "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
		if i == 2 {
			o.Clients.Idle = time.Hour
			g.replace(t, o)
		}
		if i == 3 {
			text = upgradeRequest
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		from := bufio.NewReader(conn)
		res, err := http.ReadResponse(from, nil)
		for err == nil && res.StatusCode == http.StatusEarlyHints {
			res, err = http.ReadResponse(from, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.CopyN(io.Discard, res.Body, res.ContentLength)
		switch got := res.Header["Connection"]; i {
		case 2:
			if !res.Close {
				t.Error("the connection goes on")
			}
		case 3:
			if res.StatusCode != http.StatusSwitchingProtocols || len(got) != 1 || got[0] != "Upgrade" {
				t.Errorf("the upgrade is answered with %s, %q", res.Status, got)
			}
		default:
			if res.Close {
				t.Error("the connection ends")
			}
		}
	}
	_ = c.Close()
	fresh := client(t)
	eventually(t, "what has been upgraded keeps nothing of what was told before", func() bool {
		fresh.CloseIdleConnections()
		o.Clients.Idle = 3*time.Hour - o.Clients.Idle
		g.replace(t, o)
		get(t, fresh, g.url).wants(t, 200)
		return g.fronts() == 1
	})
}

// Over HTTP/2 all streams of a connection end as they would have, and the next ones
// go over another one.
func TestReplaceServerOptionsOverHTTP2(t *testing.T) {
	t.Parallel()
	one, arrived, letGo := held(t, "one")
	o := to(one)
	g := serveGateway(t, decider(t, nil), o)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: transport, Timeout: within}
	inProgress := make(chan answer, 1)
	go func() { inProgress <- get(t, c, g.url+"/held") }()
	next(t, arrived)
	o.Clients.Idle = time.Hour
	g.replace(t, o)
	get(t, c, g.url).wants(t, 200)
	eventually(t, "a request goes over another connection", func() bool {
		another := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { another = !i.Reused }})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return res.Body.Close() == nil && another
	})
	close(letGo)
	if a := next(t, inProgress); a.text != "one" {
		t.Errorf("what was in progress got %q", a.text)
	}
	eventually(t, "the connection from before is gone", func() bool {
		g.server.mu.Lock()
		defer g.server.mu.Unlock()
		return g.server.fronts[0].open.Load() == 0 || len(g.server.fronts) == 1
	})
}

// Over TLS, those who have not shaken hands when the server is told something else are
// answered, and end after it; those who never do are closed with it.
func TestReplaceServerOptionsOverTLS(t *testing.T) {
	t.Parallel()
	one, _, _ := held(t, "one")
	o := to(one)
	g := serveTLS(t, decider(t, nil), o)
	early, silent := dial(t, g.addr), dial(t, g.addr)
	eventually(t, "both have come", func() bool { return g.counts.conns.Load() == 2 })
	o.Clients.Idle = time.Hour
	if err := g.Replace(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{dial(t, g.addr), early} {
		secure := tls.Client(c, anyCertificate())
		if _, err := io.WriteString(secure, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(secure), nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(res.Body); string(text) != "one" || res.Close != (c == early) {
			t.Errorf("the answer is %s %q, and the connection closed: %t", res.Status, text, res.Close)
		}
	}
	if err := g.server.Close(); err != nil {
		t.Error(err)
	}
	var late net.Error
	if _, err := io.Copy(io.Discard, silent); errors.As(err, &late) && late.Timeout() {
		t.Error("a connection was forgotten")
	}
	eventually(t, "no connection is open", func() bool { return g.counts.conns.Load() == 0 })
}

// A server that is closed while it is told something else leaves nothing behind, and
// no connection that it has not closed.
func TestClosedWhileOptionsChange(t *testing.T) {
	t.Parallel()
	one, _, _ := held(t, "one")
	for i := range 50 {
		o := to(one)
		g, err := New(t.Context(), decider(t, nil), o)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := g.Server(g, nil)
		var all sync.WaitGroup
		all.Go(func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		all.Go(func() {
			for n := 1; ; n++ {
				o.Clients.Idle = time.Duration(n) * time.Hour / 1000
				if g.Replace(t.Context(), o) != nil {
					return
				}
			}
		})
		for range 4 {
			all.Go(func() {
				for {
					c, err := net.DialTimeout("tcp", l.Addr().String(), within)
					if err != nil {
						return
					}
					_ = c.SetDeadline(time.Now().Add(within))
					_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
					_, err = bufio.NewReader(c).ReadString('\n')
					if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
						t.Error("a connection was forgotten")
					}
					_ = c.Close()
				}
			})
		}
		time.Sleep(time.Duration(i%10) * time.Millisecond)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		if n := g.counts.conns.Load(); n != 0 {
			t.Fatalf("%d connections are left", n)
		}
	}
}
