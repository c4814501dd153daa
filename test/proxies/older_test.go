package proxies

import (
	"net/http"
	"os/exec"
	"testing"
)

// TestExampleWithDebiansCaddy: the example serves with Caddy 2.6.2, which Debian 12 has, too.
func TestExampleWithDebiansCaddy(t *testing.T) {
	t.Parallel()
	older, err := exec.LookPath("caddy")
	if err != nil {
		t.Fatalf("scripts/install-test-programs installs it: %v", err)
	}
	p := startWith(t, "caddy", []string{"PROGRAM=" + headgate, "LIMITS=../../examples/forward-auth/limits.yml", "CADDY=" + older})
	for i := range 6 {
		want := http.StatusOK
		if i == 5 {
			want = http.StatusTooManyRequests
		}
		if a := p.ask(t, http.MethodGet, "/", ""); a.status != want || a.header.Get("X-RateLimit-Limit") != "5" {
			t.Errorf("request %d: %d %v", i+1, a.status, a.header)
		}
	}
}
