package e2e

import (
	"bufio"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLogReaderGoesAway: a server whose log nobody reads any more goes on serving, and ends as it is
// told to.
func TestLogReaderGoesAway(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{cmd: program(t, "serve", "--listen", "127.0.0.1:0", "--access-log"), read: make(chan struct{})}
	s.cmd.Stderr = writer
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	close(s.read) // Nobody waits for the rest of the log.
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(reader)
	for s.base == "" && lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), "msg=serving address="); ok {
			s.base = strings.Fields(rest)[0]
		}
	}
	if s.base == "" {
		t.Fatal("the server does not say its address")
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: within}
	for range 20 {
		if a, err := s.ask(client, "/v1/rules", ""); err != nil || a.status != http.StatusOK {
			t.Fatalf("%d, %v", a.status, err)
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(within, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	if code := exitCode(t, s.cmd.Wait()); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}
