package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPermitsAtAServer: who holds permits is listed and revoked by the commands at a server, whose
// store nobody else can reach.
func TestPermitsAtAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token := write("admin.token", "0123456789abcdef")
	s := serve(t, "--admin-token-file", token, "--config", write("permits.yml",
		"rules: [{ name: report, match: { tenant: present }, per: [tenant], in_progress: { limit: 2, shared: true, ttl: 10m } }]\n"))
	command := func(name string, more ...string) result {
		return runProgram(t, append([]string{"permit", name, "--server", s.base, "--rule", "report", "--key", "acme", "--timeout", "1m"}, more...)...)
	}
	if r := command("holders"); r.code != 2 || !strings.Contains(r.stderr, "--admin-token-file") {
		t.Errorf("without a token: exit code %d, %s", r.code, r.stderr)
	}
	admin := []string{"--admin-token-file", token}
	if r := command("holders", admin...); r.code != 0 || r.stdout != "0 of 2 in use, 0 waiting\n" {
		t.Errorf("nobody holds any: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	response, err := http.Post(s.base+"/v1/permits/acquire", "application/json",
		strings.NewReader(`{"rule":"report","key":"acme","holder":"worker \"7\""}`))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	r := command("holders", append(admin, "--json")...)
	var list listed
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || r.code != 0 || list.InUse != 1 || list.Limit != 2 || len(list.Permits) != 1 || list.Permits[0].Holder != `worker "7"` {
		t.Fatalf("one holds one: exit code %d, %v, %s%s", r.code, err, r.stdout, r.stderr)
	}
	for _, tt := range []struct {
		holder string
		code   int
		stdout string
		stderr string
	}{
		{`worker "7"`, 0, "revoked\n", ""},
		{"worker 8", 1, "", `"worker 8" neither holds a permit of rule "report"`},
		{"", 2, "", "holder"},
	} {
		if r := command("revoke", append(admin, tt.holder)...); r.code != tt.code || r.stdout != tt.stdout || !strings.Contains(r.stderr, tt.stderr) {
			t.Errorf("revoke %q: exit code %d, %s%s", tt.holder, r.code, r.stdout, r.stderr)
		}
	}
	if r := command("holders", admin...); !strings.Contains(r.stdout, "revoked, holds 1") {
		t.Errorf("after that: %s%s", r.stdout, r.stderr)
	}
	if r := runProgram(t, "permit", "holders", "--server", s.base, "--rule", "no", "--admin-token-file", token); r.code != 1 || !strings.Contains(r.stderr, `there is no rule "no"`) {
		t.Errorf("an unknown rule: exit code %d, %s", r.code, r.stderr)
	}
	if code := s.stop(t); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}
