package e2e

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// authzRules are the rules that docs/ext-authz.md begins with.
var authzRules = filepath.Join(envoyExamples, "authz-limits.yml")

// httpAddress is where the server serves HTTP.
func httpAddress(t *testing.T, s *server) string {
	t.Helper()
	u, err := url.Parse(s.base)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// TestExtAuthz has Envoy ask by the filter ext_authz, over gRPC and over HTTP.
func TestExtAuthz(t *testing.T) {
	t.Parallel()
	awayFromMidnight(t)
	for _, tt := range []struct {
		name, example, port string
		address             func(*testing.T, *server) string
	}{
		{"gRPC", "ext-authz.yaml", "8081", grpcAddress},
		{"HTTP", "ext-authz-http.yaml", "8080", httpAddress},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--grpc-listen", "127.0.0.1:0", "--config", authzRules)
			proxy := startEnvoyWith(t, tt.example, tt.port, tt.address(t, s))
			response := proxy.ask(t, "/", "X-User", "anna")
			if got := response.Header.Get("X-Ratelimit-Limit") + " " + response.Header.Get("X-Ratelimit-Remaining"); response.StatusCode != 200 || got != "5 4" {
				t.Errorf("the first request: %s, limit and remaining %q", response.Status, got)
			}
			if got := proxy.codes(t, 5, "/", "X-User", "anna"); got != "200 200 200 200 429" {
				t.Errorf("five in an hour: %s", got)
			}
			response = proxy.ask(t, "/", "X-User", "anna")
			if h := response.Header; response.StatusCode != 429 || h.Get("Retry-After") == "" || h.Get("X-Ratelimit-Remaining") != "0" || h.Get("Content-Type") != "application/problem+json" {
				t.Errorf("the denial: %s %v", response.Status, h)
			}
			if got := proxy.codes(t, 3, "/healthz", "X-User", "anna"); got != "200 200 200" {
				t.Errorf("a route without the filter: %s", got)
			}
			if got := proxy.codes(t, 1, "/", "X-User", "ben,made up"); tt.name == "HTTP" && got != "400" {
				t.Errorf("a comma where Envoy joins lines: %s", got)
			}
			// The application might take it for X-User. Envoy drops what has underscores.
			if got := proxy.codes(t, 1, "/", "X.User", "ben"); got != "400" {
				t.Errorf("a header that is X-User to some servers: %s", got)
			}
			if got := proxy.codes(t, 1, "/", "Host", "example.com:80:80"); got != "400" {
				t.Errorf("a host with two ports: %s", got)
			}
			if tt.name == "gRPC" {
				// Each costs 5 of 10 in a day, by the context extensions.
				if got := proxy.codes(t, 3, "/reports/a"); got != "200 200 429" {
					t.Errorf("reports: %s", got)
				}
				proxy.awaitLine(t, `GET / 429 \{"allowed":false,.*"limit":"5 per 1h","remaining":0,"retry_after_ms":\d+,"rule":"user"\}`)
			}
			// A forged header makes no difference: all are requests of one address.
			denied := false
			for range 40 {
				forged := proxy.ask(t, "/", "X-Forwarded-For", "198.51.100.7", "X-Forwarded-Uri", "/healthz", "X-Forwarded-Method", "PUT")
				denied = denied || forged.StatusCode == 429
			}
			if !denied {
				t.Error("40 requests with forged headers have passed, 20 in a minute may")
			}
			if code := s.stop(t); code != 0 {
				t.Errorf("the server ended with %d", code)
			}
			if got := proxy.codes(t, 2, "/", "X-User", "anna"); got != "200 200" {
				t.Errorf("without Headgate, with failure_mode_allow: %s", got)
			}
		})
	}
}

// TestExtAuthzDelay: a leaky bucket's delay that is longer than Envoy waits is a denial, and not a
// request that nobody has counted.
func TestExtAuthzDelay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, example, port string
		address             func(*testing.T, *server) string
	}{
		{"gRPC", "ext-authz.yaml", "8081", grpcAddress},
		{"HTTP", "ext-authz-http.yaml", "8080", httpAddress},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rules := filepath.Join(t.TempDir(), "paced.yml")
			text := "rules: [{ name: paced, match: { user: present }, per: [user], algorithm: leaky_bucket, limits: [1 per 4s burst 100] }]\n"
			if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := serve(t, "--grpc-listen", "127.0.0.1:0", "--config", rules)
			// Each request that passes makes the next one wait for up to four seconds.
			proxy := startEnvoyWith(t, tt.example, tt.port, tt.address(t, s), "timeout: 0.1s", "timeout: 3s",
				"entry=user:X-User", "entry=user:X-User&max_delay=30s")
			until(t, "a request is denied", func() bool {
				response := proxy.ask(t, "/", "X-User", "anna")
				return response.StatusCode == 429 && response.Header.Get("Retry-After") != ""
			})
			if code := s.stop(t); code != 0 {
				t.Errorf("the server ended with %d", code)
			}
		})
	}
}

// TestExtAuthzBehindABalancer: the address is that of the client where the balancer is trusted, and
// a request is refused without Headgate where Envoy is told so.
func TestExtAuthzBehindABalancer(t *testing.T) {
	t.Parallel()
	s := serve(t, "--grpc-listen", "127.0.0.1:0", "--config", authzRules)
	// Envoy would add its own address to X-Forwarded-For in place of one of the loopback interface.
	proxy := startEnvoyWith(t, "ext-authz.yaml", "8081", grpcAddress(t, s), "entry=user:X-User", "trust=127.0.0.0/8",
		"use_remote_address: true", "use_remote_address: false", "failure_mode_allow: true", "failure_mode_allow: false")
	denied := 0
	for range 25 {
		if proxy.ask(t, "/", "X-Forwarded-For", "198.51.100.7").StatusCode == 429 {
			denied++
		}
	}
	if got := proxy.codes(t, 1, "/", "X-Forwarded-For", "198.51.100.8"); denied == 0 || got != "200" {
		t.Errorf("of one client %d of 25 are denied; another one gets %s", denied, got)
	}
	if code := s.stop(t); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
	if got := proxy.codes(t, 1, "/"); got != "403" {
		t.Errorf("without Headgate: %s", got)
	}
}

// TestExtAuthzPage: what docs/ext-authz.md, and docs/language-models.md of Envoy, show of
// configurations is in the examples that run.
func TestExtAuthzPage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		page, from, to string
		blocks         int
		examples       []string
	}{
		{"ext-authz.md", "", "", 3, []string{"ext-authz.yaml", "ext-authz-http.yaml", "authz-limits.yml"}},
		{"language-models.md", "\n## In Envoy\n", "\n## ", 1, []string{"llm.yaml"}},
	} {
		page, err := os.ReadFile(filepath.Join("..", "..", "docs", tt.page))
		if err != nil {
			t.Fatal(err)
		}
		_, part, _ := strings.Cut(string(page), tt.from)
		if tt.to != "" {
			part, _, _ = strings.Cut(part, tt.to)
		}
		known := make(map[string]bool)
		for _, name := range tt.examples {
			text, err := os.ReadFile(filepath.Join(envoyExamples, name))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				known[strings.TrimSpace(line)] = true
			}
		}
		blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(part, -1)
		if len(blocks) < tt.blocks {
			t.Fatalf("%s has %d blocks", tt.page, len(blocks))
		}
		for _, block := range blocks {
			for line := range strings.Lines(block[1]) {
				if line := strings.TrimSpace(line); !known[line] {
					t.Errorf("%s: no example has the line %q", tt.page, line)
				}
			}
		}
	}
}
