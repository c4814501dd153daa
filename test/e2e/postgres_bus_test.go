package e2e

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/test/servers"
)

// TestPostgresTellsServers: two servers on one PostgreSQL tell each other what to forget,
// with no more than its URL.
func TestPostgresTellsServers(t *testing.T) {
	t.Parallel()
	store := servers.StartPostgres(t)
	policy := policyFile(t, consistencyPolicy)
	nodes := make([]*server, 2)
	for i := range nodes {
		nodes[i] = serve(t, "--config", policy, "--store", store.URL(), "--store-timeout", "10s")
	}
	for _, s := range nodes {
		s.await(t, "headgate_deny_cache_listening", 1)
	}
	body := ofKind("remembered", "greedy")
	for i := range 5 {
		if v := nodes[0].check(t, body); v.Allowed != (i < 3) {
			t.Fatalf("request %d: %+v", i+1, v)
		}
	}
	if n := nodes[0].metric(t, `headgate_decisions_by_source_total{source="deny_cache"}`); n != 1 {
		t.Errorf("%v denials were answered from memory, want 1", n)
	}
	if a := nodes[1].post(t, "/v1/reset", body); a.status != http.StatusOK && a.status != http.StatusNoContent {
		t.Fatalf("the reset is answered with %d %s", a.status, a.text)
	}
	nodes[0].await(t, `headgate_deny_cache_messages_total{result="heard"}`, 1)
	if v := nodes[0].check(t, body); !v.Allowed {
		t.Errorf("what another server has reset is denied: %+v", v)
	}
}
