package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
)

// envoyProgram is where scripts/install-test-programs puts Envoy.
var envoyProgram = filepath.Join("..", "..", "bin", "tools", "envoy-1.40.0")

// envoyExamples is the directory of the example that docs/envoy.md shows.
var envoyExamples = filepath.Join("..", "..", "examples", "envoy")

// envoy is a running Envoy with the example's configuration.
type envoy struct {
	base string // where it takes requests
	kill func() // ends it at once

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

func (e *envoy) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.out.Write(p)
}

func (e *envoy) logged() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.out.String()
}

// freePorts are ports that nobody listens on, and that no other test is given.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for range n {
		ports = append(ports, strconv.Itoa(servers.Port(t)))
	}
	return ports
}

// startEnvoy starts Envoy with the example's configuration, its ports exchanged,
// before a server that serves gRPC at the address. The edits are pairs of what
// stands in the configuration and what is to stand there.
func startEnvoy(t *testing.T, grpc string, edits ...string) *envoy {
	t.Helper()
	return startEnvoyWith(t, "envoy.yaml", "8081", grpc, edits...)
}

// startEnvoyWith is startEnvoy with another of the examples, which asks at the given port.
func startEnvoyWith(t *testing.T, example, asks, address string, edits ...string) *envoy {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(envoyExamples, example))
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	free := freePorts(t, 2)
	edits = append(edits, "port_value: 8888", "port_value: "+free[0], "port_value: 8889", "port_value: "+free[1], "port_value: "+asks, "port_value: "+port)
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(string(text), edits[i]) {
			t.Fatalf("the example has no %q", edits[i])
		}
	}
	// A machine that is busy with tests is no reason to let requests pass.
	edits = append(edits, "timeout: 0.1s", "timeout: 20s")
	configuration := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(configuration, []byte(strings.NewReplacer(edits...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &envoy{base: "http://127.0.0.1:" + free[0]}
	cmd := exec.Command(envoyProgram, "-c", configuration, "--concurrency", "1", "--disable-hot-restart", "--file-flush-interval-msec", "50", "-l", "warning")
	cmd.Env = append(os.Environ(), "OPENAI_API_KEY=theirs", "ANTHROPIC_API_KEY=theirs")
	cmd.Stdout, cmd.Stderr = e, e
	servers.Bind(cmd)
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; scripts/install-test-programs fetches it", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // It is told to end.
		close(ended)
	}()
	e.kill = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		<-ended
		kill.Stop()
		if t.Failed() {
			t.Logf("Envoy's log:\n%s", e.logged())
		}
	})
	until(t, "Envoy answers", func() bool {
		select {
		case <-ended:
			t.Fatal("Envoy has ended")
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		// What no descriptor is made of does not ask Headgate for more than the
		// rule for everyone.
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		response.Body.Close()
		return true
	})
	return e
}

// ask sends a request through Envoy; headers are pairs.
func (e *envoy) ask(t *testing.T, path string, headers ...string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header[headers[i]] = []string{headers[i+1]}
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response
}

// codes asks so often and returns the status codes.
func (e *envoy) codes(t *testing.T, n int, path string, headers ...string) string {
	t.Helper()
	var all []string
	for range n {
		all = append(all, fmt.Sprint(e.ask(t, path, headers...).StatusCode))
	}
	return strings.Join(all, " ")
}

// awaitLine waits for a line of Envoy's log.
func (e *envoy) awaitLine(t *testing.T, pattern string) {
	t.Helper()
	line := regexp.MustCompile(pattern)
	until(t, "Envoy logs "+pattern, func() bool { return line.MatchString(e.logged()) })
}

// grpcAddress is where the server serves gRPC.
func grpcAddress(t *testing.T, s *server) string {
	t.Helper()
	line := regexp.MustCompile(`msg="serving gRPC" address=(\S+)`)
	var found []string
	until(t, "the server serves gRPC", func() bool {
		found = line.FindStringSubmatch(s.logged())
		return found != nil
	})
	return found[1]
}

// awayFromMidnight waits while the day, in UTC, is about to end: limits by the day, the
// week and longer begin again with the next. Whatever takes minutes is done before.
func awayFromMidnight(t *testing.T) {
	t.Helper()
	now := time.Now().UTC()
	if left := now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now); left < 2*within {
		t.Logf("waiting %v for the day to end", left)
		time.Sleep(left + time.Second)
	}
}

// TestEnvoy has two Envoys before two servers with one Redis: the limits are
// those of the configuration, and shared.
func TestEnvoy(t *testing.T) {
	t.Parallel()
	awayFromMidnight(t)
	redis := servers.Start(t, servers.Redis)
	var proxies [2]*envoy
	for i := range proxies {
		s := serve(t, "--grpc-listen", "127.0.0.1:0", "--envoy-config", filepath.Join(envoyExamples, "ratelimit"), "--store", patiently(redis.URL()), "--store-timeout", "20s")
		proxies[i] = startEnvoy(t, grpcAddress(t, s))
	}
	one, two := proxies[0], proxies[1]

	response := one.ask(t, "/", "X-User", "anna")
	if got := response.Header.Get("X-Ratelimit-Limit") + " " + response.Header.Get("X-Ratelimit-Remaining"); response.StatusCode != 200 || got != "5 4" {
		t.Errorf("the first request: %s, limit and remaining %q", response.Status, got)
	}
	if got := two.codes(t, 2, "/", "X-User", "anna") + " " + one.codes(t, 4, "/", "X-User", "anna"); got != "200 200 200 200 429 429" {
		t.Errorf("five in a day: %s", got)
	}
	response = two.ask(t, "/", "X-User", "anna")
	if retry := response.Header.Get("Retry-After"); response.StatusCode != 429 || retry == "" || retry != response.Header.Get("X-Ratelimit-Reset") {
		t.Errorf("the denial: %s %v", response.Status, response.Header)
	}
	two.awaitLine(t, `GET / 429 \{"allowed":false,"descriptor":1,"limit":"5 per 1d","remaining":0,"retry_after_ms":\d+,"rule":"edge.user"\}`)

	for _, tt := range []struct {
		name, want string
		got        string
	}{
		{"another user", "200", one.codes(t, 1, "/", "X-User", "ben")},
		{"nobody", "200 200 200 200 200 200", one.codes(t, 6, "/")},
		{"unlimited", "200 200 200 200 200 200", two.codes(t, 6, "/", "X-User", "monitoring")},
		{"banned", "429 429", one.codes(t, 2, "/admin", "X-User", "carl")},
		{"what was denied was not charged", "200 200 200 200 200 429", one.codes(t, 6, "/", "X-User", "carl")},
		{"one counter for all files", "200 200 200 429", one.codes(t, 2, "/files/a", "X-User", "dora") + " " + two.codes(t, 2, "/files/b", "X-User", "dora")},
		{"a shadow", "200 200 200", two.codes(t, 3, "/new", "X-User", "emil")},
		{"a partner in place of a user", "200 200 200 200 200 200 200 200 429", one.codes(t, 9, "/", "X-User", "fred", "X-Partner", "big")},
		// A byte that is no UTF-8 is a value like any other.
		{"any bytes", "200 200 200 200 200 429", one.codes(t, 3, "/", "X-User", "\xff\xfe") + " " + two.codes(t, 3, "/", "X-User", "\xff\xfe")},
		{"an empty value", "200 200 200 200 200 429", one.codes(t, 6, "/", "X-User", "")},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, tt.got, tt.want)
		}
	}
	two.awaitLine(t, `"shadow_denied":\["edge.user.path_/new"\]`)

	// Without Redis, Envoy does what it was told to.
	redis.Stop()
	if got := one.codes(t, 2, "/", "X-User", "anna"); got != "200 200" {
		t.Errorf("without the store: %s", got)
	}
}

// TestEnvoyRules has Envoy ask a server with rules of its own, and turn requests
// away when nobody answers.
func TestEnvoyRules(t *testing.T) {
	t.Parallel()
	s := serve(t, "--grpc-listen", "127.0.0.1:0", "--config", filepath.Join(envoyExamples, "limits.yml"), "--headers", "draft-11")
	proxy := startEnvoy(t, grpcAddress(t, s), "failure_mode_deny: false", "failure_mode_deny: true")
	if got := proxy.codes(t, 4, "/", "X-User", "anna"); got != "200 200 200 429" {
		t.Errorf("three in a minute: %s", got)
	}
	if got := proxy.codes(t, 6, "/", "X-User", "monitoring"); got != "200 200 200 200 200 200" {
		t.Errorf("the allow list: %s", got)
	}
	response := proxy.ask(t, "/", "X-User", "ben")
	if policy := response.Header.Get("Ratelimit-Policy"); !strings.Contains(policy, `"user per 1h";q=5;w=3600`) {
		t.Errorf("the policy is told as %q", policy)
	}
	if code := s.stop(t); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
	if got := proxy.codes(t, 1, "/", "X-User", "ben"); got != "500" {
		t.Errorf("without a server: %s", got)
	}
}
