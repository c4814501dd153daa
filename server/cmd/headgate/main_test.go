package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the program under test, which TestMain builds.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "headgate")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "headgate")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X main.version=v9.8.7", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		panic("go build: " + string(out))
	}
	return m.Run()
}

// command is the program with these words and none of the shell's settings.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	for _, setting := range os.Environ() {
		if !strings.HasPrefix(setting, "HEADGATE_") {
			cmd.Env = append(cmd.Env, setting)
		}
	}
	return cmd
}

// exitCode is that of a process that has ended.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exited *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exited):
		return exited.ExitCode()
	}
	t.Fatal(err)
	return -1
}

func TestVersion(t *testing.T) {
	out, err := command(t, "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "headgate v9.8.7 (go") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestExitCodes(t *testing.T) {
	for code, args := range map[int][]string{
		0: {"--help"},
		2: {"serve", "--listen", "nowhere"},
		3: {"check", "login", "k", "--server", "http://127.0.0.1:1"},
	} {
		if got := exitCode(t, command(t, args...).Run()); got != code {
			t.Errorf("%v: exit code %d, want %d", args, got, code)
		}
	}
}

// server is a running "headgate serve".
type server struct {
	*exec.Cmd
	base string
	log  *bytes.Buffer
	// read is closed when the log has ended.
	read chan struct{}
}

func start(t *testing.T, args ...string) *server {
	t.Helper()
	return startCommand(t, "msg=serving address=", append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
}

// startCommand starts a command that serves, and logs the address behind these words.
func startCommand(t *testing.T, words string, args ...string) *server {
	t.Helper()
	s := &server{Cmd: command(t, args...), log: new(bytes.Buffer), read: make(chan struct{})}
	stderr, err := s.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		defer close(s.read)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			s.log.WriteString(lines.Text() + "\n")
			if _, rest, ok := strings.Cut(lines.Text(), words); ok {
				address <- strings.Fields(rest)[0]
			}
		}
	}()
	t.Cleanup(func() { _ = s.Process.Kill() }) // If a test has failed, it may still be there.
	select {
	case s.base = <-address:
	case <-s.read:
		t.Fatalf("the server ended: %v\n%s", s.Wait(), s.log)
	}
	return s
}

// stop sends the signal and returns the exit code.
func (s *server) stop(t *testing.T, signal os.Signal) int {
	t.Helper()
	if err := s.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	<-s.read
	return exitCode(t, s.Wait())
}

func (s *server) post(t *testing.T, path, body string) (int, string) {
	t.Helper()
	response, err := http.Post(s.base+path, "application/json", strings.NewReader(body))
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

const user = `{"checks":[{"rule":"auth.createToken","key":"user42"}]}`

// within bounds everything that a test waits for.
const within = 2 * time.Minute

// TestCounts: the limits of a policy hold, over HTTP.
func TestCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	// Nothing is free again while the test runs.
	if err := os.WriteFile(file, []byte("rules:\n  - {name: auth.createToken, per: [user], algorithm: sliding_window, limits: [20 per 2h, 5 per 1h]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--config", file)
	for i := range 6 {
		status, body := s.post(t, "/v1/check", user)
		if status != 200 || strings.HasPrefix(body, `{"allowed":true,`) != (i < 5) {
			t.Errorf("check %d: %d %s", i+1, status, body)
		}
	}
	if status, body := s.post(t, "/v1/check?status=true", user); status != 429 {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.post(t, "/v1/reset", user); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if _, body := s.post(t, "/v1/check", user); !strings.HasPrefix(body, `{"allowed":true,`) {
		t.Errorf("after a reset: %s", body)
	}
	if code := s.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d after SIGTERM:\n%s", code, s.log)
	}
}

func TestServe(t *testing.T) {
	s := start(t)
	if status, body := s.post(t, "/v1/check", `{"descriptor":{"user":"ada","ip":"203.0.113.10","route":"POST /login"},"cost":1}`); status != 200 || strings.Contains(body, `"decisions":[]`) {
		t.Errorf("the sample policy binds no such request: %d %s", status, body)
	}
	if status, body := s.post(t, "/v1/reset", user); status != 200 {
		t.Errorf("%d %s", status, body)
	}

	check := command(t, "check", "auth.createToken", "user42", "--server", s.base)
	if out, err := check.CombinedOutput(); exitCode(t, err) != 0 || !strings.HasPrefix(string(out), "allowed\n") {
		t.Errorf("%v: %s", err, out)
	}
	if code := s.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d after SIGTERM:\n%s", code, s.log)
	}
	log := s.log.String()
	for _, want := range []string{"msg=serving", "curl --json", s.base + "/v1/check", "shutting down", "msg=ended"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

// TestSecondSignal: whoever does not want to wait need not.
func TestSecondSignal(t *testing.T) {
	s := start(t, "--drain-delay", "1h")
	if err := s.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	// The first signal has been taken when the service says that it is not ready.
	for deadline := time.Now().Add(within); ; {
		response, err := http.Get(s.base + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusServiceUnavailable {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is ready all the time")
		}
		time.Sleep(time.Millisecond)
	}
	// It may not yet have stopped to wait for signals itself.
	deadline := time.Now().Add(within)
	for ended := false; !ended; {
		if time.Now().After(deadline) {
			t.Fatal("it does not end")
		}
		if err := s.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		select {
		case <-s.read:
			ended = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	if code := exitCode(t, s.Wait()); code != -1 {
		t.Errorf("exit code %d, want the end by a signal", code)
	}
}

// What a server sends behind an answer that has no body may be what a model has said. The log says
// that it came, and not what it was.
func TestAnswersAreNotLogged(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	noted := make(chan struct{})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			from := bufio.NewReader(c)
			if _, err := http.ReadRequest(from); err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\na completion")
				_, _ = from.ReadByte() // The gateway closes the connection when it has noted it.
			}
			_ = c.Close()
			noted <- struct{}{}
		}
	}()
	s := startCommand(t, `msg="passing requests on" address=`, "gateway", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--upstream", "http://"+l.Addr().String())
	for _, method := range []string{http.MethodGet, http.MethodPost} { // They are sent in different ways.
		r, err := http.NewRequestWithContext(t.Context(), method, s.base, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		<-noted
	}
	if code := s.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if log := s.log.String(); !strings.Contains(log, "Unsolicited response received on idle HTTP channel\n") || !strings.Contains(log, "a target sends more than its answer") || strings.Contains(log, "completion") {
		t.Errorf("the log says:\n%s", log)
	}
}
