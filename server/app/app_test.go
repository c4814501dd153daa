package app

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config"
)

// within bounds everything that a test waits for.
const within = 2 * time.Minute

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex // Guards b.
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// running is a service that serves in this process.
type running struct {
	*App
	base string
	stop context.CancelFunc
	// ended receives what Serve returned.
	ended chan error
	log   *buffer
}

func start(t *testing.T, settings Settings) *running {
	t.Helper()
	r := &running{ended: make(chan error, 1), log: new(buffer)}
	settings.Listen = "127.0.0.1:0"
	settings.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	service, err := New(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	r.App, r.base = service, "http://"+service.Addr("http").String()
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.ended <- service.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		_ = service.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

func (r *running) do(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, r.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

const checkBody = `{"checks":[{"rule":"auth.createToken","key":"user42"}]}`

func TestService(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	// Nothing is free again while the test runs.
	write(t, file, "rules:\n  - {name: auth.createToken, per: [user], algorithm: sliding_window, limits: [20 per 2h, 5 per 1h]}\n")
	r := start(t, Settings{Version: "v1.2.3", AccessLog: true, PolicyFile: file})
	for i := range 6 {
		status, body := r.do(t, "POST", "/v1/check", checkBody)
		if want := fmt.Sprintf(`{"allowed":%t,`, i < 5); status != 200 || !strings.HasPrefix(body, want) {
			t.Errorf("check %d: %d %s, want %s", i+1, status, body, want)
		}
	}
	if status, body := r.do(t, "POST", "/v1/check?status=true", checkBody); status != 429 {
		t.Errorf("a denial with status=true: %d %s", status, body)
	}
	if status, body := r.do(t, "GET", "/readyz", ""); status != 200 {
		t.Errorf("readyz: %d %s", status, body)
	}
	_, metrics := r.do(t, "GET", "/metrics", "")
	for _, want := range []string{
		`headgate_decisions_total{limit="5 per 1h",outcome="allowed",rule="auth.createToken"} 5`,
		`headgate_decisions_total{limit="5 per 1h",outcome="denied",rule="auth.createToken"} 2`,
		`headgate_store_duration_seconds_count{op="take"} 7`,
		`headgate_store_errors_total{op="take",reason="unavailable"} 0`,
		`version="v1.2.3"`,
		"go_goroutines",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if strings.Contains(metrics, "user42") {
		t.Error("the metrics hold a key")
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	if log := r.log.String(); strings.Contains(log, "user42") || !strings.Contains(log, "path=/v1/check status=429") {
		t.Errorf("the access log: %s", log)
	}
}

// half opens a connection and sends a check but for the end of its body. The
// server's leave to go on proves that the request is in flight.
func (r *running) half(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, answers, err := r.tryHalf(t)
	if err != nil {
		t.Fatal(err)
	}
	return conn, answers
}

func (r *running) tryHalf(t *testing.T) (net.Conn, *bufio.Reader, error) {
	t.Helper()
	conn, err := net.Dial("tcp", r.Addr("http").String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * within)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(checkBody))
	answers := bufio.NewReader(conn)
	line, err := answers.ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		return nil, nil, fmt.Errorf("%q, %w", line, err)
	}
	if _, err := answers.ReadString('\n'); err != nil {
		return nil, nil, err
	}
	fmt.Fprint(conn, checkBody[:10])
	return conn, answers, nil
}

// draining has a service drain, once it is stopped, for as long as the test wants:
// until the function is called.
func draining(t *testing.T, settings *Settings) (end func()) {
	t.Helper()
	settings.DrainDelay = time.Second
	ended := make(chan struct{})
	settings.sleep = func(d time.Duration) {
		if d != time.Second {
			t.Errorf("it drains for %v", d)
		}
		<-ended
	}
	end = sync.OnceFunc(func() { close(ended) })
	t.Cleanup(end)
	return end
}

// untilNotReady waits until the service says that it is to get no more requests.
func (r *running) untilNotReady(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		if status, _ := r.do(t, "GET", "/readyz", ""); status == http.StatusServiceUnavailable {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it is ready all the time")
		}
	}
}

func TestGracefulShutdown(t *testing.T) {
	settings := Settings{ShutdownTimeout: time.Minute}
	endDrain := draining(t, &settings)
	r := start(t, settings)
	conn, answers := r.half(t)

	r.stop()
	// While it drains, the service still answers, and says that it is not ready;
	// healthz has no complaint.
	r.untilNotReady(t)
	if status, _ := r.do(t, "GET", "/healthz", ""); status != http.StatusOK {
		t.Errorf("healthz while draining: %d", status)
	}
	if status, body := r.do(t, "POST", "/v1/check", checkBody); status != http.StatusOK {
		t.Errorf("a check while draining: %d %s", status, body)
	}
	endDrain()
	// Wait until the listener is closed: from here on only what is in flight
	// matters.
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("tcp", r.Addr("http").String())
		if err != nil {
			break
		}
		c.Close()
		if time.Now().After(deadline) {
			t.Fatal("the listener is not closed")
		}
	}
	select {
	case err := <-r.ended:
		t.Fatalf("the service ended with a request in flight: %v", err)
	default:
	}
	fmt.Fprint(conn, checkBody[10:])
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), `{"allowed":true`) {
		t.Errorf("the request in flight got %d %s", response.StatusCode, body)
	}
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// TestDrainKeepsConnections: a connection that is open when the shutdown begins
// carries one more answer, which asks the caller to leave.
func TestDrainKeepsConnections(t *testing.T) {
	var settings Settings
	endDrain := draining(t, &settings)
	r := start(t, settings)
	conn, err := net.Dial("tcp", r.Addr("http").String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	ask := func() *http.Response {
		t.Helper()
		fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(checkBody), checkBody)
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		return response
	}
	for range 4 { // After two of them, the connection waits on standby.
		if response := ask(); response.StatusCode != http.StatusOK || response.Close {
			t.Errorf("before: %s, close %t", response.Status, response.Close)
		}
	}
	r.stop()
	r.untilNotReady(t)
	if response := ask(); response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("while draining: %s, close %t", response.Status, response.Close)
	}
	endDrain()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// TestStandby: connections wait on standby if counters are in memory, unless the settings forbid it.
func TestStandby(t *testing.T) {
	for _, forbidden := range []bool{false, true} {
		a, err := New(t.Context(), Settings{Listen: "127.0.0.1:0", NoStandby: forbidden})
		if err != nil {
			t.Fatal(err)
		}
		if _, plain := a.doors[0].server.(*http.Server); a.doors[0].name != "http" || plain != forbidden {
			t.Errorf("forbidden %t: the server of %s is %T", forbidden, a.doors[0].name, a.doors[0].server)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHeaderBound holds the bound on headers against what is documented.
func TestHeaderBound(t *testing.T) {
	r := start(t, Settings{})
	for size, want := range map[int]int{63 << 10: http.StatusOK, 65 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.base+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Large", strings.Repeat("x", size))
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("a header of %d bytes: %s, want %d", size, response.Status, want)
		}
	}
}

func TestShutdownIsBounded(t *testing.T) {
	r := start(t, Settings{ShutdownTimeout: 50 * time.Millisecond})
	conn, answers := r.half(t)
	r.stop()
	if err := <-r.ended; err == nil || !strings.Contains(err.Error(), "50ms") {
		t.Errorf("ended with %v, want an error that names the time", err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(within))
	if _, err := answers.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection was not cut off: %v", err)
	}
}

func TestSlowCaller(t *testing.T) {
	r := start(t, Settings{readTimeout: 100 * time.Millisecond})
	var response *http.Response
	// The server may be so slow itself that it takes the caller to be slow before
	// that.
	for deadline := time.Now().Add(within); response == nil; {
		_, answers, err := r.tryHalf(t)
		if err == nil {
			response, err = http.ReadResponse(answers, nil)
		}
		if err != nil && time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d, want 408", response.StatusCode)
	}
}

func TestMistakesInSettings(t *testing.T) {
	const secret = "geheim"
	tests := []struct {
		name     string
		settings Settings
		want     string
	}{
		{"all at once", Settings{
			Listen: "8080", Store: "redes://user:" + secret + "@host", StoreTimeout: time.Hour, MemoryMiB: -1,
			HashKey: secret, Dialect: "x", DrainDelay: -1, ShutdownTimeout: 2 * time.Hour,
			GRPCConnectionAge: time.Millisecond, GRPCConnectionGrace: 100 * time.Millisecond,
		}, `listen: "8080" is not host:port, such as 127.0.0.1:8080 or :8080
--grpc-connection-age: is 1ms, must be 1s or more, or 0s
--grpc-connection-grace: is 100ms, must be 1s or more, or 0s
--store: it is neither memory, nor does it begin with redis://, redis-sentinel:// or redis-cluster:// (rediss in the place of redis is for TLS), postgres:// or memcached://
hash key: has 6 bytes, must have 16 to 1024
--store-timeout: is 1h0m0s, must be 1ms to 1m
--memory: is -1 MiB, must be 1 to 1048576
--headers: header dialect "x" is not one of [x-ratelimit ratelimit-triple draft-11 none]
--drain-delay: is -1ns, must be 0s to 1h
--shutdown-timeout: is 2h0m0s, must be up to 1h`},
		{"port", Settings{Listen: "127.0.0.1:99999"}, `listen: the port of "127.0.0.1:99999" is not a number from 0 to 65535`},
		{"a URL that does not parse", Settings{Store: "redis://u:" + secret + "%zz@host"}, "--store: the user or the password has a % that does not begin an escaped byte; in a password, write / ? # @ % as %2F %3F %23 %40 %25; write redis://user:password@host:port/database"},
		{"a slash in the password", Settings{Store: "redis://user:1/" + secret + "@host/0"}, "--store: there is an @ behind the host; in a password, write / ? # @ % as %2F %3F %23 %40 %25"},
		{"no host", Settings{Store: "redis://:" + secret + "@/0"}, "--store: there is no host; write redis://user:password@host:port/database"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.settings.Listen == "" {
				tt.settings.Listen = "127.0.0.1:0"
			}
			_, err := New(t.Context(), tt.settings)
			var mistakes *SettingsError
			if !errors.As(err, &mistakes) || err.Error() != tt.want {
				t.Errorf("%v\nwant\n%s", err, tt.want)
			}
			if strings.Contains(fmt.Sprint(err), secret) {
				t.Error("the error holds the secret")
			}
		})
	}
}

func TestWhatIsNotThere(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, err := New(t.Context(), Settings{Listen: taken.Addr().String()}); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("an address that is taken: %v", err)
	}

	// Nobody listens at the port of a connection that is open, and nobody can get it.
	conn, err := net.Dial("tcp", taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	closed := conn.LocalAddr().String()
	url := "redis://user:geheim@" + closed + "/0"
	_, err = OpenStore(t.Context(), Settings{Store: url})
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, headgate.ErrUnavailable) || strings.Contains(err.Error(), "geheim") || !strings.Contains(err.Error(), closed) {
		t.Errorf("a store that is not there: %v", err)
	}

	if _, err := New(t.Context(), Settings{Listen: "127.0.0.1:0", PolicyFile: filepath.Join(t.TempDir(), "none.yaml")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a policy that is not there: %v", err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("rules: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var mistakes *config.Error
	if _, err := New(t.Context(), Settings{Listen: "127.0.0.1:0", PolicyFile: bad}); !errors.As(err, &mistakes) || mistakes.Mistakes[0].File != bad {
		t.Errorf("a policy with a mistake: %v", err)
	}
}

func TestStoreNames(t *testing.T) {
	for given, want := range map[string]string{
		"memory":                              "memory",
		"redis://user:geheim@10.0.0.7:6379/2": "redis://10.0.0.7:6379/2",
		"rediss://:geheim@cache.example/":     "rediss://cache.example:6379/0",
		"redis://u:%zz@host":                  "a store",
		"redis-sentinel://:geheim@a,b?master=main&sentinel_password_file=f": "redis-sentinel://a:26379,b:26379/0?master=main",
	} {
		if got := describeStore(given); got != want {
			t.Errorf("%q is called %q, want %q", given, got, want)
		}
	}
}

// TestHashKey: the same secret has the same counter with the same key only.
func TestHashKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "live.yaml")
	write(t, file, "rules:\n  - name: login\n    per: [api_key]\n    limits: [5 per 1m]\n")
	key := func(hashKey string) string {
		t.Helper()
		set, err := LoadPolicy(file, hashKey, "")
		if err != nil {
			t.Fatal(err)
		}
		c, err := set.Check("login", "geheim", 1)
		if err != nil {
			t.Fatal(err)
		}
		return c.Key
	}
	a, b := strings.Repeat("a", 16), strings.Repeat("b", 16)
	if again := key(a); again != key(a) || again == key(b) || key("") == key(a) || strings.Contains(key(""), "geheim") {
		t.Errorf("keys: %q, %q, %q", key(a), key(b), key(""))
	}
}
