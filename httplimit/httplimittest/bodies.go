package httplimittest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// Cases about what passes through, and in which order.

// delays has a leaky bucket pace requests: none is denied, and the handler sees
// them only when their turn has come. The store's clock does not move, so each
// waits one millisecond more than the one before.
func delays(t *testing.T, mk Maker) {
	rule := headgate.MustRule("paced", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1000, Period: time.Second, Burst: 4})
	s := newSubject(t, mk, trusted, httplimit.Limit(httplimit.ByIP(), rule))
	s.want([]int{200, 200, 200, 200, 429})

	never := newSubject(t, mk, trusted, httplimit.Limit(httplimit.ByIP(), rule), httplimit.MaxDelay(0))
	never.want([]int{200, 429, 429})
	never.clock.Advance(time.Millisecond)
	never.want([]int{200, 429})
}

func bodies(t *testing.T, mk Maker) {
	var sizes sync.Map
	s := newSubject(t, mk, trusted, httplimit.Limit(httplimit.ByIP(), many("rule")), httplimit.Cost(func(r *http.Request) int64 {
		sizes.Store(r.ContentLength, true)
		return 1
	}))
	for _, size := range []int{0, 1, 4096, 1 << 20} {
		body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		if a := s.ask(http.MethodPost, "/echo", body); a.status != http.StatusOK || a.body != body {
			t.Errorf("%d bytes are answered with %d and %d bytes", size, a.status, len(a.body))
		}
		if _, ok := sizes.Load(int64(size)); !ok {
			t.Errorf("the Content-Length %d was not seen", size)
		}
	}
}

func streams(t *testing.T, mk Maker) {
	t.Run("as they are", func(t *testing.T) { streamed(t, mk) })
	t.Run("and settled", func(t *testing.T) {
		streamed(t, mk, httplimit.Settle(func(*http.Request, httplimit.Response) int64 { return 1 }))
	})
}

func streamed(t *testing.T, mk Maker, more ...httplimit.Option) {
	s := newSubject(t, mk, append(more, trusted, httplimit.Limit(httplimit.ByIP(), many("rule")))...)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if left := res.Header.Get("X-RateLimit-Remaining"); left != "999" {
		t.Errorf("%q remain, want 999", left)
	}
	text := bufio.NewReader(res.Body)
	for _, want := range []string{"first\n", "last\n"} {
		line, err := text.ReadString('\n')
		if err != nil || line != want {
			t.Fatalf("read %q, %v; want %q", line, err, want)
		}
		if want == "first\n" {
			s.site.read <- struct{}{}
		}
	}
	if rest, err := io.ReadAll(text); err != nil || len(rest) != 0 {
		t.Errorf("then %q, %v", rest, err)
	}
}

// bodyIsNoRequest denies requests whose bodies nobody reads, and which look like
// requests: if a server took them for what comes next on the connection, a client
// could put words into the mouths of others behind the same proxy.
func bodyIsNoRequest(t *testing.T, mk Maker) {
	const inner = "GET /items/9 HTTP/1.1\r\nHost: x\r\nX-Free: 1\r\n\r\n"
	for _, size := range []int{1, 1_000, 20_000} {
		body := strings.Repeat(inner, size)
		for name, head := range map[string]string{
			"length": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
			"chunks": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
		} {
			t.Run(fmt.Sprint(name, " of ", len(body)), func(t *testing.T) {
				s := newSubject(t, mk, trusted, httplimit.Limit(httplimit.ByIP(), one("rule")), httplimit.Cost(free))
				s.want([]int{200, 429})
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				var sending sync.WaitGroup
				defer sending.Wait()
				sending.Go(func() {
					// The server may close the connection before it has all.
					_, _ = io.WriteString(conn, "POST /echo HTTP/1.1\r\nHost: x\r\n"+head)
					if c, ok := conn.(*net.TCPConn); ok {
						_ = c.CloseWrite()
					}
				})
				var codes []int
				for from := bufio.NewReader(conn); len(codes) < 3; {
					res, err := http.ReadResponse(from, nil)
					if err != nil {
						break
					}
					codes = append(codes, res.StatusCode)
					_, err = io.Copy(io.Discard, res.Body)
					if _ = res.Body.Close(); err != nil {
						break
					}
				}
				if len(codes) > 1 || len(codes) == 1 && codes[0] < 400 || s.site.served.Load() != 1 {
					t.Errorf("answered with %v, and the handlers served %d requests, want 1", codes, s.site.served.Load())
				}
			})
		}
	}
}

// free is a cost function: requests with the header are not limited.
func free(r *http.Request) int64 {
	if r.Header.Get("X-Free") != "" {
		return 0
	}
	return 1
}

// nothingIsLeft sends requests of many kinds over one connection: frameworks use
// their contexts again.
func nothingIsLeft(t *testing.T, mk Maker) {
	s := newSubject(t, mk, trusted, httplimit.Limit(httplimit.ByHeader("X-Tenant"), one("rule")),
		httplimit.Cost(free))
	for i := range 3 {
		tenant := fmt.Sprint(i)
		s.want([]int{200, 429}, "X-Tenant", tenant)
		if a := s.get("X-Free", "1"); a.status != http.StatusOK || a.lines() != "" || a.body != "item 7" {
			t.Errorf("a request that is not limited: %d %q\n%s", a.status, a.body, a.lines())
		}
		s.want([]int{400}) // no tenant: that of the last request is forgotten
		if a := s.get("X-Tenant", tenant+" again"); a.status != http.StatusOK || a.header.Get("Retry-After") != "" || a.header.Get("Cache-Control") != "" {
			t.Errorf("the next one: %d\n%s", a.status, a.lines())
		}
	}
}

func sharedExactly(t *testing.T, mk Maker) {
	const limit, clients, each = 60, 8, 20
	s := newSubject(t, mk, trusted, httplimit.Limit(httplimit.Everyone(), headgate.MustRule("all", headgate.PerHour(limit))))
	var admitted, denied atomic.Int64
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for range each {
				a, err := s.send(http.MethodGet, "/items/7", "")
				switch {
				case err != nil:
					t.Error(err)
				case a.status == http.StatusOK:
					admitted.Add(1)
				case a.status == http.StatusTooManyRequests:
					denied.Add(1)
				}
			}
		})
	}
	group.Wait()
	if a, d, n := admitted.Load(), denied.Load(), s.site.served.Load(); a != limit || n != limit || d != clients*each-limit {
		t.Errorf("%d were admitted, %d served and %d denied; want %d, %d and %d", a, n, d, limit, limit, clients*each-limit)
	}
}
