package gateway

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/store/memory"
)

func TestBodyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	each(t, func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		} else if n > 10 && r.URL.Path != "/large" {
			t.Errorf("%d bytes reached the upstream server", n)
		}
	}, func(testing.TB) *Options {
		return &Options{Settings: gatewayfile.Settings{MaxBody: 10, Routes: []gatewayfile.Route{{Pattern: "/"}, {Pattern: "/large", MaxBody: -1}, {Pattern: "/small", MaxBody: 2}}}}
	}, func(t *testing.T, c *http.Client, g *fixture) {
		for _, tt := range []struct {
			path   string
			size   int
			status int
		}{{"/", 10, 200}, {"/", 11, 413}, {"/large", 100_000, 200}, {"/small", 2, 200}, {"/small", 3, 413}} {
			for _, known := range []bool{true, false} {
				var body io.Reader = strings.NewReader(strings.Repeat("x", tt.size))
				if !known {
					body = io.MultiReader(body) // hides its length
				}
				a := ask(t, c, http.MethodPost, g.url+tt.path, body, "X-API-Key: k")
				if a.StatusCode != tt.status {
					t.Errorf("%d bytes to %s, length known: %t: %s, want %d: %s", tt.size, tt.path, known, a.Status, tt.status, a.text)
				}
			}
		}
		// Each of the ten was charged.
		get(t, c, g.url+"/", "X-API-Key: k").wants(t, 200, "X-RateLimit-Remaining: 89")
	})
}

func TestSlowBody(t *testing.T) {
	t.Parallel()
	cut := make(chan error, 2)
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		cut <- err
	})
	o := to(up.URL)
	o.Clients.Body = 100 * time.Millisecond
	g := serveGateway(t, decider(t, nil), o)
	for _, framing := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
		r := raw(t, g.addr, "POST / HTTP/1.1\r\nHost: h\r\n"+framing+"\r\n\r\n5\r\n12345\r\n")
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusRequestTimeout || !res.Close {
			t.Errorf("with %s: %s, closed: %t", framing, res.Status, res.Close)
		}
		if err := next(t, cut); err == nil {
			t.Error("the upstream server takes half a body for a whole one")
		}
	}
}

// A body of which only the trailers are slow, or too large, is cut off like others, and
// what comes after it is no request.
func TestSlowTrailers(t *testing.T) {
	t.Parallel()
	var smuggled atomic.Bool
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		smuggled.CompareAndSwap(false, r.URL.Path == "/smuggled")
		_, _ = io.Copy(io.Discard, r.Body)
	})
	o := to(up.URL)
	o.Clients.Body = 100 * time.Millisecond
	g := serveGateway(t, decider(t, nil), o)
	for text, want := range map[string]int{
		"1\r\nx\r\n":                             http.StatusRequestTimeout,
		"0\r\n":                                  http.StatusRequestTimeout,
		"0\r\nX: a":                              http.StatusRequestTimeout,
		"0\r\nX: " + strings.Repeat("a", 64<<10): http.StatusBadRequest,
	} {
		c := dial(t, g.addr)
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"+text); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(c)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		// Large ones may be slow as well.
		if res.StatusCode != want && (want != http.StatusBadRequest || res.StatusCode != http.StatusRequestTimeout) || !res.Close {
			t.Errorf("after %.9q: %s, closed: %t", text, res.Status, res.Close)
		}
		_, _ = io.WriteString(c, "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n")
		_, _ = io.Copy(io.Discard, r)
	}
	if smuggled.Load() {
		t.Error("what came after a body was taken for a request")
	}
}

// A body of known length that drips is cut off, however short its pauses are.
func TestBodyThatDrips(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }).URL)
	o.Clients.Body, o.Clients.MinRate = 100*time.Millisecond, 1_000_000
	g := serveGateway(t, decider(t, nil), o)
	c := dial(t, g.addr)
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				if _, err := fmt.Fprint(c, "x"); err != nil {
					return
				}
			}
		}
	}()
	defer close(stop)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusRequestTimeout {
		t.Errorf("the answer is %s", res.Status)
	}
}

// A body of unknown length may drip: it may be a stream of events.
func TestStreamThatDrips(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}).URL)
	o.Clients.Body, o.Clients.MinRate = 200*time.Millisecond, 1_000_000
	g := serveGateway(t, decider(t, nil), o)
	c := client(t)
	sooner(t, "a body that pauses for less than it may arrives", func() error {
		body, write := io.Pipe()
		defer body.Close()
		go func() {
			for range 60 {
				time.Sleep(5 * time.Millisecond)
				_, _ = io.WriteString(write, "x")
			}
			_ = write.Close()
		}()
		res, err := c.Post(g.url+"/", "text/plain", body)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); err != nil || string(text) != "60 <nil>" {
			return fmt.Errorf("%s, the upstream server says %s, %w", res.Status, text, err)
		}
		return nil
	})
}

// A body that nobody reads does not hold the connection for longer than it may
// take.
func TestBodyThatNobodyReads(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, hello).URL)
	o.Clients.Body = 100 * time.Millisecond
	g := serveGateway(t, decider(t, []policy.Rule{perKey(1)}), o)
	get(t, client(t), g.url+"/", "X-API-Key: k").wants(t, 200)
	r := raw(t, g.addr, "POST / HTTP/1.1\r\nHost: h\r\nX-API-Key: k\r\nContent-Length: 100\r\n\r\nsome")
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	if res.StatusCode != 429 {
		t.Errorf("the answer is %s", res.Status)
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v", err)
	}
}

// A client that takes nothing of its answer is given up, and the upstream server
// with it.
func TestClientThatTakesNothing(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 2)
	each := func(t *testing.T, send func(g *fixture)) {
		up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 64<<10))
			}
			gone <- struct{}{}
		})
		o := to(up.URL)
		o.Clients.Response = 100 * time.Millisecond
		g := serveGateway(t, decider(t, nil), o)
		send(g)
		select {
		case <-gone:
		case <-time.After(within):
			t.Error("it still sends")
		}
		eventually(t, "the request has ended", func() bool { return g.counts.inFlight.Load() == 0 })
	}
	t.Run("HTTP1", func(t *testing.T) {
		t.Parallel()
		each(t, func(g *fixture) {
			_, _ = io.WriteString(dial(t, g.addr), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		})
	})
	t.Run("h2c", func(t *testing.T) {
		t.Parallel()
		each(t, func(g *fixture) {
			c := plainH2(t)
			c.Timeout = 0 // It is the gateway that is to end it.
			// It may be given up before the client has seen that it is answered.
			if res, err := c.Get(g.url + "/"); err == nil {
				t.Cleanup(func() { _ = res.Body.Close() })
			}
		})
	})
}

// A client that is slow to take its answer, but takes it, is not given up, and
// neither is one that waits for it.
func TestClientThatWaits(t *testing.T) {
	t.Parallel()
	each(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(300 * time.Millisecond)
		_, _ = io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		time.Sleep(300 * time.Millisecond)
		_, _ = io.WriteString(w, "second")
	}, func(testing.TB) *Options {
		return &Options{Settings: gatewayfile.Settings{Clients: gatewayfile.Clients{Response: 100 * time.Millisecond, Body: 100 * time.Millisecond}}}
	}, func(t *testing.T, c *http.Client, g *fixture) {
		sooner(t, "two are answered", func() error {
			for range 2 { // the second one over the same connection
				res, err := c.Post(g.url+"/", "text/plain", strings.NewReader("x"))
				if err != nil {
					return err
				}
				text, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || string(text) != "firstsecond" {
					return fmt.Errorf("the answer is %q, %w", text, err)
				}
			}
			return nil
		})
	})
}

func TestSlowHeaders(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, hello).URL)
	o.Clients.Header = 50 * time.Millisecond
	g := serveGateway(t, decider(t, nil), o)
	text, err := io.ReadAll(raw(t, g.addr, "GET / HTTP/1.1\r\nHost: h\r\nX-Slow"))
	if err != nil && !errors.Is(err, syscall.ECONNRESET) || strings.Contains(string(text), " 200 ") {
		t.Errorf("the connection ended with %q, %v", text, err)
	}
}

func TestHugeHeaders(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, hello).URL)
	o.MaxHeader = 8 << 10
	g := serveGateway(t, decider(t, nil), o)
	get(t, client(t), g.url+"/", "X-Large: "+strings.Repeat("x", 4<<10)).wants(t, 200)
	get(t, client(t), g.url+"/", "X-Large: "+strings.Repeat("x", 9<<10)).wants(t, 431)

	large := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", maxResponseHeader))
	})
	g = serveGateway(t, decider(t, nil), to(large.URL))
	get(t, client(t), g.url+"/").wants(t, 502)
}

// However a request is framed, the upstream server sees as many requests as the
// gateway has decided on.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/smuggled" {
			t.Errorf("a request was smuggled past the gateway")
		}
		text, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%q", text)
	})
	o := to(up.URL)
	o.AccessLog = true
	g := serveGateway(t, decider(t, nil), o)
	const inner = "GET /smuggled HTTP/1.1\r\nHost: h\r\nX: "
	length := fmt.Sprint("Content-Length: ", len(inner)+5)
	for name, request := range map[string]string{
		"length and chunks":       "POST / HTTP/1.1\r\nHost: h\r\n" + length + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"two lengths":             "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n" + length + "\r\n\r\n" + inner,
		"a list of lengths":       "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0, 44\r\n\r\n" + inner,
		"a signed length":         "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +0\r\n\r\n" + inner,
		"unknown coding":          "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
		"two codings":             "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + inner,
		"space before the colon":  "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n" + length + "\r\n\r\n0\r\n\r\n" + inner,
		"folded line":             "POST / HTTP/1.1\r\nHost: h\r\nX: y\r\n Transfer-Encoding: chunked\r\n\r\n" + inner,
		"two hosts":               "GET / HTTP/1.1\r\nHost: h\r\nHost: other\r\n\r\n",
		"newline in the path":     "GET /\nX HTTP/1.1\r\nHost: h\r\n\r\n",
		"chunk of a wrong length": "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + inner,
		"chunk with a long size":  "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n" + inner,
		"length by Connection":    "POST / HTTP/1.1\r\nHost: h\r\nConnection: Content-Length\r\n" + length + "\r\n\r\n" + inner + "12345",
		"upgrade with a body":     "POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n" + length + "\r\n\r\n" + inner + "12345",
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, g.addr)
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			_ = c.(*net.TCPConn).CloseWrite()
			text, err := io.ReadAll(c)
			if err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the connection ended with %v", err)
			}
			if strings.Count(string(text), "HTTP/1.1 200 OK") > 1 {
				t.Errorf("one request is answered as two:\n%s", text)
			}
		})
	}
	if strings.Contains(g.log.String(), "path=/smuggled") {
		t.Errorf("a body was taken for a request:\n%s", g.log)
	}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, hello).URL)
	o.Connections = gatewayfile.Connections{Total: 3, PerAddress: 2}
	g := serveGateway(t, decider(t, nil), o)
	open := func(want bool) net.Conn {
		t.Helper()
		c := dial(t, g.addr)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		_, err := http.ReadResponse(bufio.NewReader(c), nil)
		if (err == nil) != want {
			t.Errorf("with %d connections another one ends with %v", g.counts.conns.Load(), err)
		}
		return c
	}
	first := open(true)
	open(true)
	open(false)
	_ = first.Close()
	eventually(t, "the connection is not counted any more", func() bool { return g.counts.conns.Load() == 1 })
	open(true)
	if n := g.counts.refusedConn.Load(); n != 1 {
		t.Errorf("%d connections were refused, want 1", n)
	}

	// A proxy that is trusted has everybody's connections, but not more than all.
	o.Identity.Resolver = trusting(t)
	g = serveGateway(t, decider(t, nil), o)
	for _, want := range []bool{true, true, true, false} {
		open(want)
	}
}

// What is in progress is bounded alike by the options and by the rules.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	notFree := []policy.Condition{policy.Not(policy.Equal("path", "/free"))}
	byKey := []policy.Part{{Entry: "api_key"}}
	t.Run("options", func(t *testing.T) {
		t.Parallel()
		testConcurrency(t, []gatewayfile.Concurrency{{Name: "per-key", Per: byKey, Limit: 2}, {Name: "all", Limit: 3, Match: notFree}}, []policy.Rule{perKey(10)})
	})
	t.Run("rules", func(t *testing.T) {
		t.Parallel()
		testConcurrency(t, nil, []policy.Rule{
			perKey(10, policy.InProgress{Limit: 2}),
			{Name: "all", Match: notFree, InProgress: &policy.InProgress{Limit: 3}},
		})
	})
	t.Run("rules over all processes", func(t *testing.T) {
		t.Parallel()
		testConcurrency(t, nil, []policy.Rule{
			perKey(10, policy.InProgress{Limit: 2, Shared: true}),
			{Name: "all", Match: notFree, InProgress: &policy.InProgress{Limit: 3, Shared: true}},
		})
	})
}

func testConcurrency(t *testing.T, options []gatewayfile.Concurrency, rules []policy.Rule) {
	t.Helper()
	enter, leave := make(chan struct{}), make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			enter <- struct{}{}
			<-leave
		}
		hello(w, r)
	})
	o := to(up.URL)
	o.Concurrency = options
	o.Keeper = inprogress.New(inprogress.Options{Permits: memory.New()})
	t.Cleanup(func() {
		if err := o.Keeper.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	g := serveGateway(t, decider(t, rules), o)
	c := client(t)
	done := make(chan answer, 3)
	begin := func(key string) {
		go func() { done <- get(t, c, g.url+"/slow", "X-API-Key: "+key) }()
		next(t, enter)
	}
	begin("geheim")
	begin("geheim")
	a := get(t, c, g.url+"/", "X-API-Key: geheim")
	a.wants(t, 429, "Retry-After: 1", "Content-Type: application/problem+json", "X-RateLimit-Limit: ")
	if !strings.Contains(a.text, `"violated-policies":["per-key"]`) || strings.Contains(a.text, "geheim") {
		t.Errorf("the problem is %s", a.text)
	}
	begin("other")
	a = get(t, c, g.url+"/", "X-API-Key: third")
	a.wants(t, 503, "Retry-After: 1")
	if !strings.Contains(a.text, `"violated-policies":["all"]`) {
		t.Errorf("the problem is %s", a.text)
	}
	get(t, c, g.url+"/free", "X-API-Key: third").wants(t, 200)
	close(leave)
	for range 3 {
		next(t, done).wants(t, 200)
	}
	// What was shed was not charged.
	get(t, c, g.url+"/", "X-API-Key: geheim").wants(t, 200, "X-RateLimit-Remaining: 7")
	for _, s := range append(g.own.Stats(), g.keeper.Stats()...) {
		eventually(t, "the permits are back", func() bool {
			return !slices.ContainsFunc(append(g.own.Stats(), g.keeper.Stats()...), func(s inprogress.Stats) bool { return s.InUse != 0 })
		})
		if s.Refused[flow.ReasonBusy] != 1 {
			t.Errorf("%s has refused %v", s.Rule, s.Refused)
		}
	}
}

// An answer that begins before the request has ended ends the connection: what
// comes of the request after that is no request of its own.
func TestRestOfABodyIsNoRequest(t *testing.T) {
	t.Parallel()
	var reached sync.Map // paths
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if _, twice := reached.LoadOrStore(r.URL.Path, true); twice || r.URL.Path == "/smuggled" || r.URL.Path == "/denied" {
			t.Errorf("%s reached the upstream server, before: %t", r.URL.Path, twice)
		}
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Connection", "close") // else net/http stumbles over the body
		w.Header().Set("Content-Length", "0")
	})
	o := to(up.URL)
	o.Clients.Body = 50 * time.Millisecond
	g := serveGateway(t, decider(t, []policy.Rule{perKey(1)}), o)
	const rest = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
	post := func(path, key string, want int) error {
		c := dial(t, g.addr)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\nX-API-Key: %s\r\nContent-Length: %d\r\n\r\n", path, key, len(rest))
		r := bufio.NewReader(c)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if !res.Close {
			t.Errorf("the answer to %s does not end the connection", path)
		}
		for range 2 {
			if _, err := r.ReadByte(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the connection ended with %v", err)
			}
			_, _ = io.WriteString(c, rest)
		}
		if res.StatusCode != want {
			return fmt.Errorf("%s is answered with %s, want %d", path, res.Status, want)
		}
		return nil
	}
	// The upstream server may be later than the body may be.
	sooner(t, "the upstream server answers in time", func() error { return post("/"+rand.Text(), rand.Text(), 200) })
	get(t, client(t), g.url+"/", "X-API-Key: k").wants(t, 200)
	if err := post("/denied", "k", 429); err != nil {
		t.Error(err)
	}
}
