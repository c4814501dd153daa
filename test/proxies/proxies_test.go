package proxies

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/test/scripts"
	"github.com/headgate/headgate/test/servers"
)

// each runs a test for every proxy.
func each(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name)
		})
	}
}

// problem is the body of a denial.
type problem struct {
	Type     string   `json:"type"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies"`
	RetryMS  int64    `json:"retry_after_ms"`
}

// The example as its readers have it: six requests and a look at the answers.
func TestExample(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string) {
		p := startBefore(t, name, "../../examples/forward-auth/limits.yml", "")
		for i := range 5 {
			a := p.ask(t, http.MethodGet, "/", "")
			limit, remaining := "5", strconv.Itoa(4-i)
			if name == "traefik" {
				limit, remaining = "", "" // It has no way to hand them on.
			}
			if a.status != http.StatusOK || a.body != "hello\n" || a.header.Get("X-RateLimit-Limit") != limit || a.header.Get("X-RateLimit-Remaining") != remaining || (a.header.Get("X-RateLimit-Reset") == "") != (limit == "") {
				t.Errorf("request %d: %d %q %v", i+1, a.status, a.body, a.header)
			}
		}
		a := p.ask(t, http.MethodGet, "/", "")
		var d problem
		if err := json.Unmarshal([]byte(a.body), &d); err != nil {
			t.Errorf("%v in %q", err, a.body)
		}
		retry, err := strconv.Atoi(a.header.Get("Retry-After"))
		if a.status != http.StatusTooManyRequests || err != nil || retry < 1 || retry > 30 || a.header.Get("X-RateLimit-Remaining") != "0" || a.header.Get("Cache-Control") != "no-store" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("the sixth request: %d %v", a.status, a.header)
		}
		if d.Status != http.StatusTooManyRequests || !slices.Equal(d.Violated, []string{"client per 30s"}) || d.RetryMS < 1 || d.Type == "" {
			t.Errorf("the sixth request: %s", a.body)
		}
		if a := p.ask(t, http.MethodHead, "/", ""); a.status != http.StatusTooManyRequests || a.body != "" || a.header.Get("Retry-After") == "" {
			t.Errorf("HEAD: %d %q %v", a.status, a.body, a.header)
		}
		if a := p.ask(t, http.MethodPost, "/", strings.Repeat("x", 10_000)); a.status != http.StatusTooManyRequests {
			t.Errorf("POST: %d %v", a.status, a.header)
		}
	})
}

// hostile is a policy by which a request that is counted in another way than it
// should be would pass, or not.
const hostile = `
deny:
  - name: scanners
    match: { path: /wp-* }
rules:
  - name: search
    match: { route: "GET /search/{what}" }
    per: [ip/64]
    limits: [1 per 30d]
  - name: key
    match: { route: "POST /v1/token" }
    per: [api_key]
    limits: [2 per 30d]
  - name: host
    match: { host: example.com, method: PUT }
    per: all
    limits: [1 per 30d]
`

// What a request is, is what the proxy says, whatever the client writes.
func TestClientsCannotForge(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string) {
		p := start(t, name, policyFile(t, hostile), "--hash-key", "0123456789abcdef")
		for _, tt := range []struct {
			name, method, path string
			header             []string
			want               int
		}{
			{"the first", "GET", "/search/a?b", nil, 200},
			{"the second", "GET", "/search/b", nil, 429},
			{"as another client", "GET", "/search/b", []string{"X-Forwarded-For", "203.0.113.7", "Forwarded", "for=203.0.113.7", "X-Real-IP", "203.0.113.7"}, 429},
			{"as another method", "GET", "/search/b", []string{"X-Forwarded-Method", "DELETE", "X-Original-Method", "DELETE"}, 429},
			{"as another URI", "GET", "/search/b", []string{"X-Forwarded-Uri", "/", "X-Original-URI", "/"}, 429},
			{"in other letters", "GET", "/%73earch/b", nil, 429},
			{"with two slashes", "GET", "/search//b", nil, 429},
			{"with two slashes at the start", "GET", "//search/b", nil, 400},
			{"by a detour", "GET", "/x/../search/b", nil, 400},
			{"with a slash in the name", "GET", "/search/b%2Fc", nil, 400},
			{"two keys", "POST", "/v1/token", []string{"X-Api-Key", "k1", "X-Api-Key", "k2"}, 400},
			{"HEAD", "HEAD", "/search/b", nil, 429},
			{"another route", "GET", "/searches/b", nil, 200},
			{"a key", "POST", "/v1/token", []string{"Authorization", "Bearer k1"}, 200},
			{"the key in another header", "POST", "/v1/token", []string{"X-Api-Key", "k1"}, 200},
			{"the key again", "POST", "/v1/token", []string{"X-Api-Key", "k1"}, 429},
			{"another key", "POST", "/v1/token", []string{"X-Api-Key", "k2", "Cookie", "a=" + strings.Repeat("x", 6000)}, 200},
			{"the deny list", "GET", "/wp-login.php", nil, 403},
		} {
			a := p.ask(t, tt.method, tt.path, "", tt.header...)
			want := tt.want
			switch {
			case want == 400 && name == "nginx":
				want = 403 // nginx cannot pass it on
			case name == "traefik" && (tt.path == "//search/b" || tt.path == "/x/../search/b"):
				want = 429 // Traefik makes /search/b of it before it asks, and passes that on.
			}
			if a.status != want {
				t.Errorf("%s, %s %s: %d, want %d\n%v\n%s", tt.name, tt.method, tt.path, a.status, want, a.header, a.body)
			}
			if (a.status == http.StatusOK) != (a.body == "hello\n") {
				t.Errorf("%s: %d %q", tt.name, a.status, a.body)
			}
		}
	})
}

// Two proxies of different make, each with a Headgate of its own on one store: no
// client gets more through both than the limit.
func TestTwoProxiesShareLimits(t *testing.T) {
	t.Parallel()
	const limit = 100
	policy := policyFile(t, "rules:\n  - name: all\n    algorithm: sliding_window\n    per: all\n    limits: [100 per 30d]\n")
	store := servers.Start(t, servers.Redis)
	var proxies []*peer
	for _, name := range names[:2] {
		proxies = append(proxies, start(t, name, policy, "--store", store.URL(), "--store-timeout", "30s"))
	}
	var admitted, denied atomic.Int64
	var clients sync.WaitGroup
	for c := range 12 {
		clients.Go(func() {
			client := &http.Client{Transport: new(http.Transport)}
			defer client.CloseIdleConnections()
			p := proxies[c%len(proxies)]
			for range 20 {
				a, err := p.send(client, http.MethodGet, "/", "")
				switch {
				case err == nil && a.status == http.StatusOK:
					admitted.Add(1)
				case err == nil && a.status == http.StatusTooManyRequests:
					denied.Add(1)
				default:
					t.Errorf("%s: %d %v %s, %v", p.name, a.status, a.header, a.body, err)
					return
				}
			}
		})
	}
	clients.Wait()
	if admitted.Load() != limit || denied.Load() != 12*20-limit {
		t.Errorf("%d were admitted and %d denied, want %d and %d", admitted.Load(), denied.Load(), limit, 12*20-limit)
	}
}

// Without a Headgate nginx and HAProxy let requests pass, as the example tells
// them to; Caddy and Traefik cannot.
func TestHeadgateIsGone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string) {
		p := start(t, name, "")
		want := http.StatusOK
		switch name {
		case "caddy":
			want = http.StatusBadGateway
		case "traefik":
			want = http.StatusInternalServerError
		}
		if a := p.ask(t, http.MethodGet, "/", ""); a.status != want || (a.body == "hello\n") != (want == http.StatusOK) {
			t.Errorf("%d %q, want %d", a.status, a.body, want)
		}
	})
}

// HAProxy passes nothing on without a Headgate, if it is told so.
func TestHAProxyIsClosed(t *testing.T) {
	t.Parallel()
	p := &peer{name: "haproxy"}
	p.Script = scripts.Serving(t, func() *scripts.Script {
		proxy := address(t)
		p.url = "http://" + proxy
		return scripts.Start(t, "../../examples/forward-auth/run",
			[]string{"PROGRAM=none", "FAILURE=closed", "PROXY=" + proxy, "APP=" + address(t), "HEADGATE=" + address(t)}, p.name)
	}, func(s *scripts.Script) bool { return s.Await("(?m)^haproxy is ready") != nil })
	if a := p.ask(t, http.MethodGet, "/", ""); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "5" {
		t.Errorf("%d %v %q, want 503", a.status, a.header, a.body)
	}
}

// A rule that must not be passed while the store is gone, is not.
func TestStoreIsGone(t *testing.T) {
	t.Parallel()
	policy := policyFile(t, `
rules:
  - name: login
    match: { route: POST /login }
    per: [ip/64]
    limits: [9 per 1h]
    on_store_error: deny
  - name: all
    per: all
    limits: [1000 per 1h]
    on_store_error: allow
`)
	each(t, func(t *testing.T, name string) {
		store := servers.Start(t, servers.Valkey)
		p := start(t, name, policy, "--store", store.URL(), "--store-timeout", "500ms")
		if a := p.ask(t, http.MethodPost, "/login", ""); a.status != http.StatusOK {
			t.Errorf("before: %d", a.status)
		}
		store.Kill()
		if a := p.ask(t, http.MethodGet, "/", ""); a.status != http.StatusOK {
			t.Errorf("what may pass: %d %v", a.status, a.header)
		}
		if a := p.ask(t, http.MethodPost, "/login", ""); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "5" {
			t.Errorf("what must not: %d %v %s", a.status, a.header, a.body)
		}
	})
}

// appServer is an application that says hello, and something of limits of its own at /own.
func appServer(t *testing.T) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/own" {
			w.Header().Set("X-RateLimit-Limit", "7")
			w.Header().Set("X-RateLimit-Remaining", "0")
			w.Header().Set("X-RateLimit-Reset", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = io.WriteString(w, "hello\n")
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// What an application says of limits of its own reaches the client, and once.
func TestApplicationsOwnLimits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string) {
		p := startBefore(t, name, "../../examples/forward-auth/limits.yml", appServer(t))
		a := p.ask(t, http.MethodGet, "/own", "")
		for _, header := range []struct{ name, value string }{{"X-Ratelimit-Limit", "7"}, {"X-Ratelimit-Remaining", "0"}, {"X-Ratelimit-Reset", "3600"}} {
			if got := a.header.Values(header.name); a.status != http.StatusTooManyRequests || len(got) != 1 || got[0] != header.value {
				t.Errorf("%d, %s is %q, want %q", a.status, header.name, got, header.value)
			}
		}
		if a := p.ask(t, http.MethodGet, "/", ""); name != "traefik" && !slices.Equal(a.header.Values("X-Ratelimit-Limit"), []string{"5"}) {
			t.Errorf("without limits of its own: %v", a.header)
		}
	})
}

// A Headgate that is killed, or that hangs, holds requests for no longer than the page says. What
// is measured is the shortest of several requests, since this machine may hold any of them.
func TestHeadgateHangs(t *testing.T) {
	t.Parallel()
	const most = 2500 * time.Millisecond
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, name := range []string{"nginx", "haproxy", "caddy"} { // Traefik waits for 30 seconds.
			t.Run(name+" "+signal.String(), func(t *testing.T) {
				t.Parallel()
				open := name != "caddy"
				p, hang := startAnother(t, name)
				if a := p.ask(t, http.MethodGet, "/", ""); a.status != http.StatusOK {
					t.Fatalf("%d %s", a.status, a.body)
				}
				if err := hang(signal); err != nil {
					t.Fatal(err)
				}
				shortest := time.Hour
				for range 4 {
					began := time.Now()
					a := p.ask(t, http.MethodGet, "/", "")
					shortest = min(shortest, time.Since(began))
					if (a.status == http.StatusOK) != open || !open && a.status < 500 {
						t.Errorf("%d %s", a.status, a.body)
					}
					// HAProxy and Caddy ask nobody for a second.
					time.Sleep(1100 * time.Millisecond)
				}
				if shortest > most {
					t.Errorf("every request took %v or more", shortest)
				}
			})
		}
	}
}
