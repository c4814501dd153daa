package frameworks

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/httplimit"
)

// Each of the services is built and started, and asked as any client would.
func TestServices(t *testing.T) {
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "./...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, name := range []string{"chi", "echo", "fiber", "gin"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t, filepath.Join(dir, name))
			for i, tt := range []struct {
				path string
				code int
				rule string
				text string
			}{
				{"/items/7", 200, "", "item 7\n"},
				{"/search", 200, "", "found nothing\n"},
				{"/search", 429, "search", ""},
				{"/items/7", 200, "", "item 7\n"},
				{"/items/8", 200, "", "item 8\n"},
				{"/items/9", 429, "client per 30s", ""},
			} {
				code, header, body := get(t, url+tt.path)
				var p httplimit.Problem
				if code == http.StatusTooManyRequests {
					if err := json.Unmarshal([]byte(body), &p); err != nil {
						t.Errorf("%v in %q", err, body)
					}
				}
				if code != tt.code || tt.text != "" && body != tt.text || strings.Join(p.ViolatedPolicies, " ") != tt.rule || header.Get("X-RateLimit-Limit") == "" {
					t.Errorf("request %d, %s: %d %q %v", i+1, tt.path, code, body, header)
				}
			}
		})
	}
}

// start starts a service on a free port, until the test ends, and returns its
// address.
func start(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "-listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var failure strings.Builder
	cmd.Stderr = &failure
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		// It was killed, which is an error and not one to tell.
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(line), "listening at ")
	if err != nil || !ok {
		t.Fatalf("%s says %q, %v", program, line, err)
	}
	return url
}

func get(t *testing.T, url string) (code int, header http.Header, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}
