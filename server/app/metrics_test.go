package app

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/telemetry/insight"
)

const metricsPolicy = `
deny:
  - { name: scanners, match: { ip: 203.0.113.9 } }
  - { name: idle, match: { ip: 203.0.113.10 } }
allow:
  - { name: probes, match: { ip: 203.0.113.11 } }
rules:
  - name: api
    per: [user]
    algorithm: sliding_window
    limits:
      tier: { pro: [100 per 1m], "*": [2 per 1h] }
    soft: 50%
  - name: trial
    per: [user]
    algorithm: sliding_window
    limits: [1 per 1h]
    mode: shadow
`

// TestMetricsOfRequests: each door's requests are counted by what became of them, and an
// entry of a list by whom it has answered. What decides nothing is not counted.
func TestMetricsOfRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, metricsPolicy)
	r := start(t, Settings{PolicyFile: file, AdminToken: adminToken, lookEvery: time.Hour})
	for _, body := range []string{
		`{"descriptor":{"user":"anna","ip":"192.0.2.1"}}`,
		`{"descriptor":{"user":"anna","ip":"192.0.2.1"}}`,
		`{"descriptor":{"user":"anna","ip":"192.0.2.1"}}`,
		`{"descriptor":{"user":"bert","ip":"203.0.113.9"}}`,
		`{"descriptor":{"user":"bert","ip":"203.0.113.11"}}`,
		`{"descriptor":{"nothing":"binds"}}`,
	} {
		r.do(t, "POST", "/v1/check", body)
	}
	r.do(t, "POST", "/v1/peek", `{"descriptor":{"user":"anna","ip":"203.0.113.9"}}`)
	r.do(t, "POST", "/v1/refund", `{"descriptor":{"user":"anna"}}`)
	r.do(t, "POST", "/v1/check", `{"nonsense":true}`)
	r.metrics(t,
		`headgate_requests_total{door="http",outcome="admitted"} 4`,
		`headgate_requests_total{door="http",outcome="denied"} 1`,
		`headgate_requests_total{door="http",outcome="listed"} 1`,
		`headgate_requests_total{door="http",outcome="error"} 0`,
		`headgate_request_duration_seconds_count{door="http"} 6`,
		`headgate_requests_waiting{door="http"} 0`,
		`headgate_list_hits_total{entry="scanners",list="deny"} 1`,
		`headgate_list_hits_total{entry="probes",list="allow"} 1`,
		`headgate_decisions_total{limit="1 per 1h",outcome="shadow_denied",rule="trial"} 2`,
		`headgate_decisions_total{limit="1 per 1h",outcome="denied",rule="trial"} 0`,
		`headgate_limit_units{limit="100 per 1m",rule="api"} 100`,
		`headgate_limit_period_seconds{limit="2 per 1h",rule="api"} 3600`,
		`headgate_memory_max_bytes 5.36870912e+08`,
	)
	if _, metrics := r.do(t, "GET", "/metrics", ""); strings.Contains(metrics, `"idle"`) {
		t.Error("an entry that has answered nobody has a series")
	}
	// The dashboard has the same outcomes.
	var now insightapi.Now
	r.insight(t, "now", &now)
	if want := (insight.Counts{Allowed: 4, Denied: 1, Listed: 1, Passed: 1, Shadow: 2}); len(now.Doors) != 1 || now.Doors[0].Counts != want || len(now.Lists) != 2 || now.Lists[0].Hits != 1 || now.Outage != nil {
		t.Errorf("now: %+v, %+v; want %+v", now.Doors, now.Lists, want)
	}
}

// TestSeriesEnd: what a policy no longer has is no longer shown, even if requests are under
// way at the moment of the change. The rest goes on.
func TestSeriesEnd(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, metricsPolicy)
	r := start(t, Settings{PolicyFile: file, AdminToken: adminToken, lookEvery: time.Hour})
	for _, body := range []string{`{"descriptor":{"user":"anna"}}`, `{"descriptor":{"ip":"203.0.113.9"}}`, `{"descriptor":{"user":"c","tier":"pro"}}`} {
		r.do(t, "POST", "/v1/check", body)
	}
	r.metrics(t, `headgate_soft_total{rule="api"} 1`, `headgate_list_hits_total{entry="scanners",list="deny"} 1`, `headgate_limit_units{limit="1 per 1h",rule="trial"} 1`)

	write(t, file, `
rules:
  - name: api
    per: [user]
    algorithm: sliding_window
    limits:
      tier: { pro: [100 per 1m], "*": [3 per 1h] }
`)
	if status, body := r.reload(t, adminToken); status != 200 {
		t.Fatal(status, body)
	}
	r.do(t, "POST", "/v1/check", `{"descriptor":{"user":"anna"}}`)
	r.metrics(t, `headgate_decisions_total{limit="100 per 1m",outcome="allowed",rule="api"} 1`, `headgate_decisions_total{limit="3 per 1h",outcome="allowed",rule="api"} 1`,
		`headgate_limit_units{limit="3 per 1h",rule="api"} 3`)
	_, metrics := r.do(t, "GET", "/metrics", "")
	for _, gone := range []string{`rule="trial"`, `limit="2 per 1h"`, `"scanners"`} {
		if strings.Contains(metrics, gone) {
			t.Errorf("the metrics still have %s", gone)
		}
	}
}
