package proxies

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/servers"
)

// gullible starts an application that believes more than it should: nginx, which passes all headers
// on and finds the host as it does, before a WSGI server, which takes X_Api_Key for X-Api-Key. It
// says which host and which key it has served.
func gullible(t *testing.T) (addr string) {
	t.Helper()
	wsgi := exec.Command("python3", "testdata/folding.py")
	servers.Bind(wsgi)
	out, err := wsgi.StdoutPipe()
	if err == nil {
		err = wsgi.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = wsgi.Process.Kill()
		_ = wsgi.Wait() // It was killed.
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr = address(t)
	dir := t.TempDir()
	text := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr crit; worker_processes 1; events {}
http { access_log off; underscores_in_headers on; ignore_invalid_headers off;
client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
server { listen %[2]s default_server; location / { proxy_set_header X-Served other; proxy_pass http://127.0.0.1:%[3]s; } }
server { listen %[2]s; server_name api.example.com; location / { proxy_set_header X-Served api; proxy_pass http://127.0.0.1:%[3]s; } }
}`, dir, addr, strings.TrimSpace(port))
	name := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx"
	}
	serveAt(t, addr, program, "-p", dir, "-e", "stderr", "-c", name)
	return addr
}

// serveAt starts a program that serves at the address, until the test ends.
func serveAt(t *testing.T, addr string, command ...string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	servers.Bind(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v; scripts/install-test-programs installs it", command[0], err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // It was killed.
	})
	await(t, addr)
}

// gateway starts the gateway before an application, and returns its address.
func gateway(t *testing.T, app, policy string) (addr string) {
	t.Helper()
	addr = address(t)
	serveAt(t, addr, headgate, "gateway", "--upstream", "http://"+app, "--config", policy, "--listen", addr, "--admin-listen", "127.0.0.1:0", "--hash-key", "0123456789abcdef")
	return addr
}

// raw sends a request with this Host and these lines as they are, and returns the status and the
// body of the answer: 0 if there is none.
func raw(t *testing.T, addr, method, target, host string, lines ...string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\nConnection: close\r\n", method, target, host)
	for _, line := range lines {
		b.WriteString(line + "\r\n")
	}
	b.WriteString("\r\n")
	if _, err := c.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

const identities = `
rules:
  - name: login
    match: { route: "POST api.example.com/login" }
    per: all
    algorithm: sliding_window
    limits: [1 per 30d]
  - name: host
    match: { host: api.example.com, route: /host }
    per: all
    algorithm: sliding_window
    limits: [1 per 30d]
  - name: key
    match: { route: /key }
    per: [api_key]
    algorithm: sliding_window
    limits: [1 per 30d]
  - name: delete
    match: { route: "DELETE /items/{id}" }
    per: all
    algorithm: sliding_window
    limits: [1 per 30d]
`

// Nobody reaches a host, or spends a key, that was not counted, whatever the application believes.
func TestWhatTheApplicationBelieves(t *testing.T) {
	t.Parallel()
	app := gullible(t)
	for _, name := range append([]string{"gateway"}, names...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := policyFile(t, identities)
			var addr string
			if name == "gateway" {
				addr = gateway(t, app, policy)
			} else {
				addr = strings.TrimPrefix(startBefore(t, name, policy, app, "--hash-key", "0123456789abcdef").url, "http://")
			}
			for _, first := range []string{"/login", "/host"} {
				for i, want := range []int{200, 429} {
					if status, body := raw(t, addr, "POST", first, "api.example.com"); status != want {
						t.Fatalf("request %d for %s: %d %s, want %d", i+1, first, status, body, want)
					}
				}
			}
			for _, host := range []string{
				"API.example.com", "api.example.com:8080", "api.example.com:", "api.example.com.", "api.example.com:80:80", "api.example.com::", "api.example.com:abc", "api.example.com:80a", "api.example.com.:80",
				"api.example.com.:80:80", "api.example.com:80,other", "api.example.com,other", "other,api.example.com", "api.example.com:@other", "other@api.example.com", "api.example.com:80/", "api.example.com#", "api.example.com\tx", "[api.example.com]", "api%2eexample.com",
			} {
				for _, path := range []string{"/login", "/host"} {
					// nginx as the proxy asks the application for another host; it must count all the same.
					status, body := raw(t, addr, "POST", path, host)
					if status == 200 && (name == "nginx" || strings.Contains(body, "host=api")) {
						t.Errorf("%s of %q is answered with %s, uncounted", path, host, body)
					}
				}
			}
			for target, host := range map[string]string{"http://api.example.com/login": "other", "http://other/login": "api.example.com", "http://api.example.com:80:80/login": "api.example.com"} {
				if status, body := raw(t, addr, "POST", target, host); status == 200 && (name == "nginx" && target != "http://other/login" || strings.Contains(body, "host=api")) {
					t.Errorf("%s of %s is answered with %s, uncounted", target, host, body)
				}
			}
			if status, body := raw(t, addr, "POST", "/login", "other.example.com:8080"); status != 200 || !strings.Contains(body, "host=other") {
				t.Errorf("another host: %d %s", status, body)
			}
			for i, want := range []int{200, 429} {
				if status, body := raw(t, addr, "POST", "/key", "other", "X-Api-Key: k"); status != want || want == 200 && !strings.Contains(body, "key=k ") {
					t.Fatalf("request %d with the key: %d %s, want %d", i+1, status, body, want)
				}
			}
			for _, header := range []string{"X_Api_Key", "x_api-KEY", "X-Api_Key", "X.Api.Key", "X~Api+Key"} {
				if status, body := raw(t, addr, "POST", "/key", "other", header+": k"); status == 200 && strings.Contains(body, "key=k ") {
					t.Errorf("%s is answered with %s, uncounted", header, body)
				}
			}
			if status, body := raw(t, addr, "POST", "/key", "other", "SCRIPT_NAME: /x"); status == 200 && !strings.Contains(body, "script=None") {
				t.Errorf("SCRIPT_NAME reaches the application: %s", body)
			}
			for _, tt := range []struct{ target, header string }{
				{"/items/7?_method=DELETE", "X-A: b"}, {"/items/7?a=b&%5fmethod=DELETE", "X-A: b"}, {"/items/7", "X-HTTP-Method-Override: DELETE"}, {"/items/7", "X-Method-Override: DELETE"},
			} {
				if status, body := raw(t, addr, "POST", tt.target, "other", tt.header); status != 400 && (name != "nginx" || status != 403) { // nginx cannot pass on 400
					t.Errorf("%s with %q: %d %s", tt.target, tt.header, status, body)
				}
			}
			if status, _ := raw(t, addr, "POST", "/items/7?method=DELETE", "other"); status != 200 {
				t.Errorf("a request that nobody takes for another: %d", status)
			}
		})
	}
}

// What docs/gateway.md says of methods that are overridden is true of Rack, which Rails and Sinatra
// stand on: no door sees _method in a body, and a rule for both methods counts it.
func TestMethodInABody(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.ru")
	if err := os.WriteFile(file, []byte(`use Rack::MethodOverride
run ->(env) { [200, { "content-type" => "text/plain" }, [env["REQUEST_METHOD"]]] }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	app := address(t)
	serveAt(t, app, "puma", "-q", "-t", "1:1", "-b", "tcp://"+app, file)
	const rule = "rules:\n  - name: items\n    match: { route: %s }\n    per: all\n    algorithm: sliding_window\n    limits: [1 per 30d]\n"
	post := func(addr, override string) (int, string) {
		p := &peer{url: "http://" + addr}
		a := p.ask(t, http.MethodPost, "/items/7", "_method=DELETE", "Content-Type", "application/x-www-form-urlencoded", "X-HTTP-Method-Override", override)
		return a.status, a.body
	}
	if status, body := post(app, ""); status != 200 || body != "DELETE" {
		t.Fatalf("Rack answers with %d %s", status, body)
	}
	one := gateway(t, app, policyFile(t, fmt.Sprintf(rule, `"DELETE /items/{id}"`)))
	if status, body := post(one, "DELETE"); status != 400 {
		t.Errorf("a method in a header: %d %s", status, body)
	}
	for _, routes := range []string{`["DELETE /items/{id}", "POST /items/{id}"]`, `"/items/{id}"`} {
		both := gateway(t, app, policyFile(t, fmt.Sprintf(rule, routes)))
		for i, want := range []int{200, 429} {
			p := &peer{url: "http://" + both}
			if a := p.ask(t, http.MethodPost, "/items/7", "_method=DELETE", "Content-Type", "application/x-www-form-urlencoded"); a.status != want || want == 200 && a.body != "DELETE" {
				t.Errorf("request %d under %s: %d %s, want %d", i+1, routes, a.status, a.body, want)
			}
		}
	}
}
