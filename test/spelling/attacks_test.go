package spelling

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/spelling/spellingtest"
	"github.com/headgate/headgate/test/scripts"
	"github.com/headgate/headgate/test/servers"
)

// relay is an application that is another one behind: which one, the test says. It passes
// bytes on as they come.
type relay struct {
	net.Listener
	mu    sync.Mutex // guards what follows
	to    string
	conns map[net.Conn]bool
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, conns: make(map[net.Conn]bool)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.pass(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.turn("")
		all.Wait()
	})
	return r
}

// turn has connections go to that address from now on. Those there are it closes.
func (r *relay) turn(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for c := range r.conns {
		_ = c.Close()
	}
	clear(r.conns)
}

func (r *relay) pass(c net.Conn) {
	defer c.Close()
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	r.mu.Lock()
	r.conns[c], r.conns[up] = true, true
	r.mu.Unlock()
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, up)
	r.mu.Lock()
	delete(r.conns, c)
	delete(r.conns, up)
	r.mu.Unlock()
}

// limits are used up by the first request.
const limits = `
behind: [tomcat, express, koa, node, starlette, bottle, php]
rules:
  - name: token
    match: { route: POST /v1/token }
    per: all
    limits: [1 per 30d]
  - name: script
    match: { route: POST /script.php }
    per: all
    limits: [1 per 30d]
  - name: admin
    match: { route: POST /admin/ }
    per: all
    limits: [1 per 30d]
`

// keyed counts by the API key.
const keyed = limits + `
  - name: key
    match: { route: POST /v2/keyed }
    per: [api_key]
    limits: [1000 per 30d]
`

// door starts the gateway or a proxy before an application, and returns its address.
func door(t *testing.T, name, app string) string {
	t.Helper()
	policy := filepath.Join(t.TempDir(), "limits.yml")
	if err := os.WriteFile(policy, []byte(keyed), 0o600); err != nil {
		t.Fatal(err)
	}
	address := func() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(servers.Port(t))) }
	var addr string
	if name == "gateway" {
		addr = address()
		run(t, []string{headgate, "gateway", "--upstream", "http://" + app, "--config", policy, "--listen", addr, "--admin-listen", "127.0.0.1:0", "--hash-key", "0123456789abcdef"}, "")
		if err := answers(addr); err != nil {
			t.Fatal(err)
		}
		return addr
	}
	scripts.Serving(t, func() *scripts.Script {
		addr = address()
		return scripts.Start(t, "../../examples/forward-auth/run", []string{
			"PROGRAM=" + headgate, "LIMITS=" + policy, "CADDY=" + caddy, "PROXY=" + addr, "APP=" + address(), "FORWARD=" + app, "HEADGATE=" + address(),
		}, name, "--hash-key", "0123456789abcdef")
	}, func(s *scripts.Script) bool { return s.Await("(?m)^"+name+" is ready") != nil })
	return addr
}

// Nobody reaches a protected path of a real server uncounted, through the gateway or
// through a proxy that asks, however the path is spelled.
func attacks(t *testing.T, applications addresses) {
	_, targets, err := spellingtest.Servers()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gateway", "nginx", "haproxy", "caddy"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := newRelay(t)
			app.turn(applications["go"])
			addr := door(t, name, app.Addr().String())
			for _, target := range []string{"/v1/token", "/admin/x", "/script.php"} {
				for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
					if status, body, err := ask(addr, http.MethodPost, target); err != nil || status != want {
						t.Fatalf("request %d for %s: %d %s %v, want %d", i+1, target, status, body, err, want)
					}
				}
			}
			for _, upstream := range []string{"tomcat", "express 4", "express 5", "koa", "node", "starlette", "bottle", "php apache", "php fpm"} {
				app.turn(applications[upstream])
				// Headgate's HTTP server does not take such a request; some applications do.
				for _, line := range []string{"X-Api-Key: a\x01b", "Authorization: Bearer a\x7f"} {
					status, body, err := ask(addr, http.MethodPost, "/v1/token", line)
					if err != nil || status == http.StatusOK {
						t.Errorf("%s answers a request with %q with %d %s, %v: uncounted", upstream, line, status, body, err)
					}
				}
				served := 0
				for _, target := range targets {
					status, body, err := ask(addr, http.MethodPost, target)
					if err != nil {
						t.Fatalf("%s, %q: %v", upstream, target, err)
					}
					if status == http.StatusOK && body == "other" {
						served++
					}
					if protected := status == http.StatusOK && slices.Contains(protected, body); protected {
						t.Errorf("%s answers %q as %s, uncounted", upstream, target, body)
					}
				}
				if served < 3 {
					t.Errorf("%s has answered %d requests: the others show nothing", upstream, served)
				}
			}
			app.turn(applications["node"])
			for _, lines := range [][]string{
				{"X-Api-Key: a", "X-Api-Key: b"},
				{"x-api-key: a", "X-API-KEY: a"},
				{"Authorization: Bearer a", "Authorization: Bearer b"},
				{"Authorization: Bearer a b"},
			} {
				status, _, err := ask(addr, http.MethodPost, "/v2/keyed", lines...)
				// nginx cannot pass on 400.
				if err != nil || status != http.StatusBadRequest && (name != "nginx" || status != http.StatusForbidden) {
					t.Errorf("a request with %q is answered with %d, %v", lines, status, err)
				}
			}
			if status, body, err := ask(addr, http.MethodPost, "/v2/keyed", "X-Api-Key: a"); status != http.StatusOK || body != "other" {
				t.Errorf("a request with one key is answered with %d %s, %v", status, body, err)
			}
		})
	}
}
