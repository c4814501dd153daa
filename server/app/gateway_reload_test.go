package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// named is an upstream server that answers with its name.
func named(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	t.Cleanup(s.Close)
	return s.URL
}

func gatewayFile(target, more string) string {
	return fmt.Sprintf("upstreams:\n  - { name: a, targets: [\"%s\"], timeouts: { dial: 30s } }\n%s", target, more)
}

// untilLogged waits until the log has the text so often.
func (r *running) untilLogged(t *testing.T, text string, n int) {
	t.Helper()
	for deadline := time.Now().Add(within); strings.Count(r.log.String(), text) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log has %q less than %d times:\n%s", text, n, r.log)
		}
	}
}

// TestGatewayFileChanges: the gateway file takes effect as the policy file does, and
// one with mistakes changes nothing.
func TestGatewayFileChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, policy := filepath.Join(dir, "gateway.yml"), filepath.Join(dir, "policy.yml")
	one, two := named(t, "one"), named(t, "two")
	write(t, file, gatewayFile(one, ""))
	write(t, policy, fmt.Sprintf(itemRules, "100 per 1h"))
	r := start(t, Settings{
		PolicyFile: policy, AdminToken: adminToken, lookEvery: time.Millisecond,
		Gateway: &GatewaySettings{Listen: "127.0.0.1:0", File: file},
	})
	answers := func(want string) {
		t.Helper()
		if _, text := r.passed(t, nil, "/items/1"); text != want {
			t.Errorf("%q answers, want %q\n%s", text, want, r.log)
		}
	}
	answers("one")
	replace(t, file, gatewayFile(two, ""))
	r.untilLogged(t, "the gateway file has changed", 1)
	answers("two")
	r.metrics(t, `headgate_gateway_reloads_total{result="changed"} 1`, `headgate_gateway_info{hash="`+r.gateway.active.Load().hash+`",version="2"} 1`, "headgate_gateway_last_reload_failed 0")

	for i, bad := range []struct{ text, log, answer string }{
		{"upstreams: {}", "gateway.yml:1:12", `"detail":"the gateway file has a mistake; version 1 stays in force"`},
		{gatewayFile(one, "identity: { jwt: { keys: absent.json, claims: { user: sub } } }"), "absent.json", "absent.json"},
		{gatewayFile(one, "routes: [{ match: \"GET /{a}/1\" }]"), "conflicts with", "conflicts with"},
	} {
		replace(t, file, bad.text)
		r.untilLogged(t, "the gateway file was not reloaded; what was in force stays", 2*i+1)
		r.logs(t, bad.log)
		if status, text := r.reload(t, adminToken); status != http.StatusUnprocessableEntity || !strings.Contains(text, bad.answer) {
			t.Errorf("the reload is answered with %d %s, want %s", status, text, bad.answer)
		}
		answers("two")
		if status, text := r.do(t, "GET", "/readyz", ""); status != http.StatusOK || !strings.Contains(text, "the gateway file could not be taken") || !strings.Contains(text, "version 2 stays") {
			t.Errorf("/readyz: %d %s", status, text)
		}
	}
	r.metrics(t, `headgate_gateway_reloads_total{result="failed"} 6`, "headgate_gateway_last_reload_failed 1", "headgate_policy_last_reload_failed 0")

	replace(t, file, gatewayFile(one, "max_header: 1KiB"))
	r.untilLogged(t, "the gateway file has changed", 2)
	answers("one")
	if response, _ := r.passed(t, nil, "/items/1", "X-Large", strings.Repeat("a", 16<<10)); response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("headers that are too large now are answered with %s", response.Status)
	}
	if status, text := r.reload(t, adminToken); status != http.StatusOK || !strings.Contains(text, `"result":"unchanged"`) {
		t.Errorf("the reload is answered with %d %s", status, text)
	}
	if status, text := r.do(t, "GET", "/readyz", ""); status != http.StatusOK || strings.Contains(text, "gateway") {
		t.Errorf("/readyz: %d %s", status, text)
	}
}

// A policy and a gateway file that cannot be together never are, whichever comes
// first of two that change at once.
func TestPolicyAndGatewayFileChangeAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, policy := filepath.Join(dir, "gateway.yml"), filepath.Join(dir, "policy.yml")
	one := named(t, "one")
	write(t, file, gatewayFile(one, ""))
	write(t, policy, fmt.Sprintf(itemRules, "100 per 1h"))
	r := start(t, Settings{
		PolicyFile: policy, lookEvery: time.Hour,
		Gateway: &GatewaySettings{Listen: "127.0.0.1:0", File: file},
	})
	for range 20 {
		// Neither can be with the other's new one.
		write(t, file, gatewayFile(one, "routes: [{ match: \"GET /{a}/b\" }]"))
		write(t, policy, "rules:\n  - { name: c, match: { route: \"GET /c/{d}\" }, per: all, limits: [1 per 1h] }\n")
		var both sync.WaitGroup
		both.Go(func() { _, _ = r.gateway.reload("test") })
		both.Go(func() { _, _, _ = r.source.reload("test") })
		both.Wait()
		if err := r.source.check(r.Policy().Set); err != nil {
			t.Fatalf("in force is what cannot be together: %v", err)
		}
		if (r.gateway.failed.Load() == nil) == (r.source.failed.Load() == nil) {
			t.Fatalf("not just one of them was refused:\n%s", r.log)
		}
		write(t, file, gatewayFile(one, ""))
		write(t, policy, fmt.Sprintf(itemRules, "100 per 1h"))
		for range 2 {
			_, _ = r.gateway.reload("test")
			_, _, _ = r.source.reload("test")
		}
	}
}
