package app

import (
	"path/filepath"
	"testing"
)

// TestListAndMemoryMetrics: what lists answer is counted by their entries, and the counters in
// memory are shown, whether they are all there are or only those of this server's shares.
func TestListAndMemoryMetrics(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "live.yaml")
	write(t, file, `rules:
  - name: login
    per: [user]
    limits: [5 per 1h]
deny:
  - { name: scanners, match: { user: mallory } }
allow:
  - { name: staff, match: { user: root } }
`)
	r := start(t, Settings{PolicyFile: file})
	for _, user := range []string{"mallory", "mallory", "root", "anna"} {
		r.do(t, "POST", "/v1/check", `{"descriptor":{"user":"`+user+`"}}`)
	}
	r.do(t, "POST", "/v1/peek", `{"descriptor":{"user":"mallory"}}`)
	r.metrics(t, `headgate_list_hits_total{entry="scanners",list="deny"} 2`, `headgate_list_hits_total{entry="staff",list="allow"} 1`,
		"headgate_memory_counters 1", "headgate_memory_shared_total 0", "headgate_memory_merged_total 0")
}
