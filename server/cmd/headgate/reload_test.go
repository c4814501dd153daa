package main_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHangup: SIGHUP has the policy read anew, ends nothing, and what was used
// stays used.
func TestHangup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("rules:\n  - name: mail\n    per: [user]\n    limits: [2 per 1h]\n")
	s := start(t, "--config", file)
	rules := func() string {
		t.Helper()
		response, err := http.Get(s.base + "/v1/rules")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const check = `{"checks":[{"rule":"mail","key":"anna"}]}`
	for range 2 {
		if _, body := s.post(t, "/v1/check", check); !strings.HasPrefix(body, `{"allowed":true`) {
			t.Fatal(body)
		}
	}
	write("rules:\n  - name: mail\n    per: [user]\n    limits: [3 per 1h]\n")
	if err := s.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(within); !strings.HasPrefix(rules(), `{"version":2,`); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in force is %s", rules())
		}
	}
	for i, want := range []string{`{"allowed":true`, `{"allowed":false`} {
		if _, body := s.post(t, "/v1/check", check); !strings.HasPrefix(body, want) {
			t.Errorf("check %d after the reload: %s", i+1, body)
		}
	}
	if code := s.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.log)
	}
	if log := s.log.String(); !strings.Contains(log, "version=2 hash=") {
		t.Errorf("the log does not tell of the reload:\n%s", log)
	}
}
