package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/headgate/headgate/test/servers"
)

// gateway is a running "headgate gateway".
type gateway struct {
	*server
	url string
}

// gate starts a gateway and waits until it says its addresses.
func gate(t *testing.T, args ...string) *gateway {
	t.Helper()
	g := &gateway{server: begin(t, append([]string{"gateway", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)}
	const mark = `msg="passing requests on" address=`
	for deadline := time.Now().Add(within); g.url == ""; time.Sleep(time.Millisecond) {
		if _, rest, ok := strings.Cut(g.logged(), mark); ok {
			g.url = strings.Fields(rest)[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("the gateway does not say its address:\n%s", g.logged())
		}
	}
	return g
}

// send sends a request through the gateway, with headers "Name: value".
func (g *gateway) send(t *testing.T, client *http.Client, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, g.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(text), res.Close}
}

// The example does what docs/gateway.md says of it, on other ports and with periods that
// no machine is slow enough to outlast.
func TestGatewayExample(t *testing.T) {
	t.Parallel()
	const dir = "../../examples/gateway/"
	bin := filepath.Join(t.TempDir(), "upstream")
	build := command(t, "go", "build", "-o", bin, "./examples/gateway/upstream")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(dir + "gateway.yml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "gateway.yml")
	for _, port := range []string{"9001", "9002"} {
		free := freePorts(t, 1)[0]
		up := command(t, bin, "-listen", "127.0.0.1:"+free)
		if err := up.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = up.Wait() }) // it is killed
		until(t, "the upstream server listens", func() bool {
			c, err := net.DialTimeout("tcp", "127.0.0.1:"+free, within)
			if err != nil {
				return false
			}
			return c.Close() == nil
		})
		text = []byte(strings.ReplaceAll(string(text), port, free))
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile(dir + "limits.yml")
	if err != nil {
		t.Fatal(err)
	}
	policy := policyFile(t, strings.NewReplacer("5 per 3s", "5 per 59s", "per 1m", "per 1h").Replace(string(limits)))
	g := gate(t, "--gateway", file, "--config", policy, "--access-log")
	client := &http.Client{Transport: new(http.Transport), Timeout: within}
	defer client.CloseIdleConnections()
	until(t, "the gateway has an upstream server", func() bool {
		return g.send(t, client, "GET", "/healthz", nil, "X-API-Key: probe").status == http.StatusOK
	})

	servers, protocols := make(map[string]bool), make(map[string]bool)
	for i := range 6 {
		a := g.send(t, client, "GET", fmt.Sprint("/items/", i), nil, "X-API-Key: geheim", "X-Auth-User: ann", "X-Forwarded-For: 203.0.113.7")
		if want := map[bool]int{true: 200, false: 429}[i < 5]; a.status != want {
			t.Fatalf("request %d: %d %s, want %d", i+1, a.status, a.text, want)
		}
		if i == 5 {
			break
		}
		for _, want := range []string{`"user":"ann"`, `"client":"203.0.113.7, 127.0.0.1"`} {
			if !strings.Contains(a.text, want) {
				t.Errorf("the upstream server says %s, want %s", a.text, want)
			}
		}
		servers[cut(a.text, `"server":"`)] = true
		protocols[cut(a.text, `"protocol":"`)] = true
	}
	if len(servers) != 2 || !protocols["HTTP/1.1"] || !protocols["HTTP/2.0"] {
		t.Errorf("five requests went to %v by %v", servers, protocols)
	}
	for i, want := range []int{200, 200, 200, 429} {
		if a := g.send(t, client, "POST", "/token", nil, "X-API-Key: other"); a.status != want {
			t.Errorf("token %d: %d %s, want %d", i+1, a.status, a.text, want)
		}
	}
	// A report costs what its server says, which the client is not told.
	for i, want := range []string{"900", "600", "300", "0"} {
		a := g.send(t, client, "GET", "/report?rows=300", nil, "X-API-Key: r")
		if a.status != 200 || a.header.Get("X-RateLimit-Remaining") != want || a.header.Get("X-Rows") != "" {
			t.Errorf("report %d: %d %s %v, want %s remaining", i+1, a.status, a.text, a.header, want)
		}
		until(t, "it is settled", func() bool {
			return strings.Contains(g.get(t, "/metrics").text, fmt.Sprintf("settlements_total{result=\"settled\"} %d\n", i+1))
		})
	}
	if a := g.send(t, client, "POST", "/upload", strings.NewReader(strings.Repeat("x", 1<<20)), "X-API-Key: u"); a.status != 200 || a.text != `{"bytes":"1048576"}`+"\n" || a.header.Get("X-RateLimit-Remaining") != "9" {
		t.Errorf("an upload: %d %s %v", a.status, a.text, a.header)
	}
	// What is refused as too large is given back.
	for range 2 {
		if a := g.send(t, client, "POST", "/upload", strings.NewReader(strings.Repeat("x", 1<<20+1)), "X-API-Key: u"); a.status != 413 || a.header.Get("X-RateLimit-Remaining") != "8" {
			t.Errorf("a large upload: %d %s %v", a.status, a.text, a.header)
		}
	}

	events, err := client.Get(g.url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(events.Body).ReadString('\n')
	if line != "data: 1\n" || err != nil {
		t.Errorf("the first event is %q, %v", line, err)
	}
	_ = events.Body.Close()

	for _, want := range []string{`headgate_gateway_requests_total{outcome="denied",status="4xx"} 2`, `headgate_gateway_target_requests_total{`} {
		if metrics := g.get(t, "/metrics").text; !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if code := g.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(g.logged(), "geheim") || !strings.Contains(g.logged(), "verdict=denied rule=items") {
		t.Errorf("the log is\n%s", g.logged())
	}
}

// cut is what stands behind the mark, up to a quote.
func cut(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	found, _, _ := strings.Cut(rest, `"`)
	return found
}

// Two gateways on one store are one limit.
func TestGatewaysShareLimits(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, store *servers.Server) {
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
		defer up.Close()
		policy := policyFile(t, "rules:\n  - name: items\n    match: { route: \"GET /items/{id}\" }\n    per: [api_key]\n    algorithm: sliding_window\n    limits: [100 per 1d]\n")
		var gates []*gateway
		for range 2 {
			gates = append(gates, gate(t, "--upstream", up.URL, "--config", policy, "--store", patiently(store.URL()), "--store-timeout", "30s", "--hash-key", hashKey))
		}
		var admitted atomic.Int64
		var clients sync.WaitGroup
		for c := range 8 {
			clients.Go(func() {
				client := &http.Client{Transport: new(http.Transport), Timeout: within}
				defer client.CloseIdleConnections()
				for i := range 25 {
					a := gates[(c+i)%2].send(t, client, "GET", fmt.Sprint("/items/", i), nil, "X-API-Key: k")
					switch a.status {
					case 200:
						admitted.Add(1)
					case 429:
					default:
						t.Errorf("%d %s", a.status, a.text)
					}
				}
			})
		}
		clients.Wait()
		if n := admitted.Load(); n != 100 {
			t.Errorf("%d requests were admitted, want exactly 100", n)
		}
	})
}

// A WebSocket passes through, and ends with the gateway.
func TestGatewayWebSocket(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.CloseNow() }()
		for {
			kind, text, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if c.Write(r.Context(), kind, text) != nil {
				return
			}
		}
	}))
	defer up.Close()
	policy := policyFile(t, "rules:\n  - name: sockets\n    per: [ip]\n    limits: [1 per 1d]\n")
	g := gate(t, "--upstream", up.URL, "--config", policy, "--shutdown-timeout", "20s")
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	c, res, err := websocket.Dial(ctx, g.url+"/chat", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	if res.Header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("the answer has %v", res.Header)
	}
	for _, text := range []string{"one", strings.Repeat("large ", 5000), "three"} {
		if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(ctx); err != nil || string(got) != text {
			t.Fatalf("%.20q comes back as %.20q, %v", text, got, err)
		}
	}
	if _, res, err := websocket.Dial(ctx, g.url+"/chat", nil); err == nil || res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a second one gets %v, %v", res, err)
	}
	if code := g.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, _, err := c.Read(ctx); err == nil {
		t.Error("the connection outlives the gateway")
	}
}

// slowBody is the body of a request, which takes some milliseconds to arrive. So a few clients
// have requests under way at every instant without keeping a processor busy.
type slowBody struct{ left int }

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Millisecond)
	n := min(len(p), b.left, 2500)
	for i := range p[:n] {
		p[i] = 'x'
	}
	b.left -= n
	return n, nil
}

// Not one request fails while the gateway file changes between two servers, and a
// file with mistakes changes nothing.
func TestGatewayFileChangesUnderLoad(t *testing.T) {
	t.Parallel()
	var text [2]string
	for i := range text {
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				t.Error(err)
			}
			fmt.Fprint(w, i, " ", n)
		}))
		defer up.Close()
		text[i] = "upstreams:\n  - { name: shop, targets: [\"" + up.URL + "\"], health: { path: /healthz, every: 10ms, timeout: 1m } }\nconcurrency: [{ name: all, per: all, limit: 1000 }]\n"
	}
	file := filepath.Join(t.TempDir(), "gateway.yml")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put(text[0])
	g := gate(t, "--gateway", file, "--config", policyFile(t, "rules:\n  - { name: all, per: all, limits: [1000000 per 1s] }\n"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var answered [2]atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		client := &http.Client{Transport: new(http.Transport), Timeout: within}
		defer client.CloseIdleConnections()
		clients.Go(func() {
			for ctx.Err() == nil {
				// A POST is never sent again: whatever is lost shows.
				request, err := http.NewRequest(http.MethodPost, g.url+"/items", &slowBody{left: 10_000})
				if err != nil {
					t.Error(err)
					return
				}
				request.ContentLength = 10_000
				res, err := client.Do(request)
				if err != nil {
					t.Error(err)
					return
				}
				text, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				switch {
				case err == nil && string(text) == "0 10000":
					answered[0].Add(1)
				case err == nil && string(text) == "1 10000":
					answered[1].Add(1)
				default:
					t.Errorf("%s %q %v", res.Status, text, err)
					return
				}
			}
		})
	}
	for change := range 6 {
		put(text[change%2])
		from := answered[change%2].Load()
		for deadline := time.Now().Add(within); answered[change%2].Load() < from+20; time.Sleep(time.Millisecond) {
			if t.Failed() || time.Now().After(deadline) {
				t.Fatalf("change %d does not take effect:\n%s", change, g.logged())
			}
		}
	}
	put("upstreams: {}")
	for deadline := time.Now().Add(within); !strings.Contains(g.logged(), "the gateway file was not reloaded"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the mistake is not told:\n%s", g.logged())
		}
	}
	for _, want := range []string{`headgate_gateway_reloads_total{result="changed"} 5`, "headgate_gateway_last_reload_failed 1", `,version="6"} 1`} {
		if metrics := g.get(t, "/metrics").text; !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	stop()
	clients.Wait()
	if code := g.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(g.logged(), "a target has failed") {
		t.Errorf("a server was lost on the way:\n%s", g.logged())
	}
}

// While Redis does not answer, rules count locally unless they say otherwise, and
// requests pass.
func TestGatewayWithoutItsStore(t *testing.T) {
	t.Parallel()
	store := servers.Start(t, servers.Redis)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	defer up.Close()
	policy := policyFile(t, `
rules:
  - { name: local, match: { route: GET /local }, per: all, limits: [2 per 1d] }
  - { name: open, match: { route: GET /open }, per: all, limits: [2 per 1d], on_store_error: allow }
  - { name: closed, match: { route: GET /closed }, per: all, limits: [2 per 1d], on_store_error: deny }
`)
	g := gate(t, "--upstream", up.URL, "--config", policy, "--store", patiently(store.URL()))
	store.Kill()
	client := &http.Client{Transport: new(http.Transport), Timeout: within}
	defer client.CloseIdleConnections()
	for path, want := range map[string]string{"/local": "200 200 429 429", "/open": "200 200 200 200", "/closed": "503 503 503 503", "/other": "200 200 200 200"} {
		got := ""
		for range 4 {
			a := g.send(t, client, "GET", path, nil)
			got += fmt.Sprint(" ", a.status)
			if marked := a.header.Get("X-RateLimit-Unenforced") != ""; marked != (path == "/open") {
				t.Errorf("%s: unenforced is %t", path, marked)
			}
		}
		if got != " "+want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
