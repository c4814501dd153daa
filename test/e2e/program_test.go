package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
)

// binary is the program under test, which TestMain builds. scratch is a directory for what tests share,
// which is removed after the last of them.
var binary, scratch string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if binary, err = servers.Headgate(); err == nil {
		scratch, err = os.MkdirTemp("", "headgate-e2e-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// within bounds what a test waits for: what comes on a quiet machine in a moment takes
// its time on one that is busy.
const within = 2 * time.Minute

// until waits for what must come to be.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !is(); time.Sleep(25 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// patiently is the URL of a Redis with time to connect, which a busy machine needs.
func patiently(url string) string { return url + "?connect_timeout=30s" }

// command is a program that is killed when the test ends, after twenty minutes in any
// case, and with this process.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*within)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	servers.Bind(cmd)
	// What it has started may hold its output open.
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// program is the binary with these words and none of the shell's settings. It is
// killed when the test ends.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, binary, args...)
	for _, setting := range os.Environ() {
		if !strings.HasPrefix(setting, "HEADGATE_") {
			cmd.Env = append(cmd.Env, setting)
		}
	}
	return cmd
}

// result is what a command left behind.
type result struct {
	code           int
	stdout, stderr string
}

// runProgram runs a command to its end.
func runProgram(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := program(t, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return result{exitCode(t, cmd.Run()), stdout.String(), stderr.String()}
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

// server is a running "headgate serve", or another command that serves.
type server struct {
	cmd  *exec.Cmd
	base string
	read chan struct{} // closed when the log has ended

	mu  sync.Mutex // guards log
	log strings.Builder
}

// serve starts a server and waits until it says its address.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	return begin(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
}

// begin starts a command that serves, and waits until it says the address of its
// API.
func begin(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{cmd: program(t, args...), read: make(chan struct{})}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		defer close(s.read)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			s.mu.Lock()
			s.log.WriteString(lines.Text() + "\n")
			s.mu.Unlock()
			if _, rest, ok := strings.Cut(lines.Text(), "msg=serving address="); ok {
				address <- strings.Fields(rest)[0]
			}
		}
	}()
	select {
	case s.base = <-address:
	case <-s.read:
		t.Fatalf("the server ended: %v\n%s", s.cmd.Wait(), s.logged())
	case <-time.After(within):
		t.Fatalf("the server does not say its address within %v:\n%s", within, s.logged())
	}
	return s
}

func (s *server) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// stop ends the server as an operator would, and returns its exit code.
func (s *server) stop(t *testing.T) int {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// One that does not heed it ends with another code than 0.
	kill := time.AfterFunc(within, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	<-s.read
	return exitCode(t, s.cmd.Wait())
}

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	text   string
	closed bool // The server asks the caller to close the connection.
}

// ask sends one request; a body makes it a POST. It may be called from any
// goroutine.
func (s *server) ask(client *http.Client, path, body string) (answer, error) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.base+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text), response.Close}, err
}

// get and post are ask for those who can fail the test.
func (s *server) get(t *testing.T, path string) answer { return s.post(t, path, "") }

func (s *server) post(t *testing.T, path, body string) answer {
	t.Helper()
	a, err := s.ask(http.DefaultClient, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// verdict is what the tests look at in an answer to a check.
type verdict struct {
	Allowed      bool  `json:"allowed"`
	RetryAfterMS int64 `json:"retry_after_ms"`
	DeniedBy     struct {
		Rule  string `json:"rule"`
		Limit string `json:"limit"`
	} `json:"denied_by"`
	Decisions []struct {
		Rule      string `json:"rule"`
		Allowed   bool   `json:"allowed"`
		Remaining int64  `json:"remaining"`
	} `json:"decisions"`
}

func parse(t *testing.T, text string) verdict {
	t.Helper()
	var v verdict
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// check takes units and returns the verdict.
func (s *server) check(t *testing.T, body string) verdict {
	t.Helper()
	a := s.post(t, "/v1/check", body)
	if a.status != http.StatusOK {
		t.Fatalf("%s is answered with %d %s", body, a.status, a.text)
	}
	return parse(t, a.text)
}

// policyFile writes a policy to a file.
func policyFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policy.yml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
