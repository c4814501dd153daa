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
	"testing"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/policy"
)

// shout is an upstream server that switches to a protocol in which it answers each
// line in capitals.
func shout(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "shout" {
			w.WriteHeader(http.StatusUpgradeRequired)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
		_ = rw.Flush()
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = rw.WriteString(strings.ToUpper(line))
			_ = rw.Flush()
		}
	}
}

const upgradeRequest = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: shout\r\nX-API-Key: k\r\n\r\n"

// shouting is a connection that has been upgraded through the gateway.
func shouting(t *testing.T, addr string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	c := dial(t, addr)
	// The first line comes before there is an answer: it must not be lost.
	if _, err := io.WriteString(c, upgradeRequest+"early\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, r, res
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, shout(t)).URL)
	o.Upgrades = []string{"Shout"}
	o.AccessLog = true
	o.Concurrency = []gatewayfile.Concurrency{{Name: "sockets", Per: []policy.Part{{Entry: "api_key"}}, Limit: 1}}
	g := serveGateway(t, decider(t, []policy.Rule{perKey(2)}), o)
	c, r, res := shouting(t, g.addr)
	if res.StatusCode != 101 || res.Header.Get("X-RateLimit-Remaining") != "1" || res.Header.Get("Upgrade") != "shout" {
		t.Fatalf("the answer is %s with %v", res.Status, res.Header)
	}
	for i := range 3 {
		if i > 0 {
			fmt.Fprintf(c, "line %d\n", i)
		}
		want := map[int]string{0: "EARLY\n", 1: "LINE 1\n", 2: "LINE 2\n"}[i]
		if line, err := r.ReadString('\n'); line != want {
			t.Fatalf("line %d is %q, %v", i, line, err)
		}
	}
	// It is one request in progress, as long as it lasts.
	_, _, res = shouting(t, g.addr)
	if res.StatusCode != 429 {
		t.Errorf("a second connection is answered with %s", res.Status)
	}
	if n := g.upgrades.count(); n != 1 {
		t.Errorf("there are %d upgraded connections", n)
	}
	_ = c.Close()
	eventually(t, "it has ended", func() bool { return g.counts.inFlight.Load() == 0 && g.upgrades.count() == 0 })
	eventually(t, "the log tells of it", func() bool { return strings.Contains(g.log.String(), "status=101") })
	_, _, res = shouting(t, g.addr)
	if res.StatusCode != 101 {
		t.Errorf("another connection after that is answered with %s", res.Status)
	}
}

// Upgraded connections end with the server, once all other requests have.
func TestUpgradeEndsWithTheServer(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, shout(t)).URL)
	o.Upgrades = []string{"shout"}
	g, err := New(t.Context(), decider(t, nil), o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := g.Server(g, nil)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	_, r, _ := shouting(t, l.Addr().String())
	if line, _ := r.ReadString('\n'); line != "EARLY\n" {
		t.Fatalf("the first line is %q", line)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if _, err := r.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v", err)
	}
	if err := next(t, ended); !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

// A connection on which nobody says anything is closed.
func TestUpgradeThatIsSilent(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, shout(t)).URL)
	o.Upgrades = []string{"Shout"}
	o.Clients.Upgraded = 100 * time.Millisecond
	g := serveGateway(t, decider(t, nil), o)
	sooner(t, "the first line comes back in time", func() error {
		_, r, _ := shouting(t, g.addr)
		if line, err := r.ReadString('\n'); line != "EARLY\n" {
			return fmt.Errorf("the first line is %q, %w", line, err)
		}
		if _, err := r.ReadString('\n'); !errors.Is(err, io.EOF) {
			t.Errorf("the connection ended with %v", err)
		}
		return nil
	})
	eventually(t, "it has ended", func() bool { return g.upgrades.count() == 0 })
}

func TestUpgradeThatIsRefused(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUpgradeRequired) })
	g := serveGateway(t, decider(t, nil), to(up.URL))
	_, _, res := shouting(t, g.addr)
	if res.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("the answer is %s", res.Status)
	}
}

// Through a connection that speaks HTTP/2 unseen, requests would pass the gateway
// by.
func TestUpgradeThatIsNotPassedOn(t *testing.T) {
	t.Parallel()
	g := serveGateway(t, decider(t, nil), to(upstream(t, echo).URL))
	for protocol, want := range map[string]string{"h2c": "", "shout": "", "websocket, h2c": "", "WebSocket": "WebSocket"} {
		a := get(t, client(t), g.url+"/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: "+protocol, "HTTP2-Settings: AAMAAABkAAQAAP__")
		a.wants(t, 200)
		a.saw(t, "Upgrade: "+want, "Http2-Settings: ")
	}
	a := ask(t, client(t), http.MethodPost, g.url+"/", strings.NewReader("x"), "Connection: Upgrade", "Upgrade: websocket")
	a.wants(t, 200)
	a.saw(t, "Upgrade: ", "Connection: ")
}

// HTTP/1.0 knows neither upgrades nor informational answers.
func TestHTTP10(t *testing.T) {
	t.Parallel()
	g := serveGateway(t, decider(t, nil), to(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			t.Errorf("the upstream server is asked to change to %s", r.Header.Get("Upgrade"))
		}
		w.WriteHeader(http.StatusEarlyHints)
		hello(w, r)
	}).URL))
	res, err := http.ReadResponse(raw(t, g.addr, "GET / HTTP/1.0\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || !res.Close {
		t.Errorf("the answer is %s, and the connection closed: %t", res.Status, res.Close)
	}
}

// Over HTTP/2 nobody can change protocols: who says so has said nothing.
func TestSwitchOverHTTP2(t *testing.T) {
	t.Parallel()
	up := plainH2Server(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusSwitchingProtocols)
		hello(w, r)
	})
	g := serveGateway(t, decider(t, nil), to(up))
	from := raw(t, g.addr, strings.Repeat("GET /a HTTP/1.1\r\nHost: h\r\n\r\n", 2))
	for range 2 {
		res, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusOK || string(text) != "hello /a" || err != nil {
			t.Errorf("the answer is %s, %q, %v", res.Status, text, err)
		}
	}
}
