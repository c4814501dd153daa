package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/server/candidate"
)

// candidateReport asks for the report, with the token or without.
func (r *running) candidateReport(t *testing.T, token string) candidate.Report {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.base+"/v1/candidate", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var report candidate.Report
	if err := json.NewDecoder(response.Body).Decode(&report); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v", response.StatusCode, err)
	}
	return report
}

// compared waits for so many comparisons.
func (r *running) compared(t *testing.T, n int64) candidate.Report {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		if report := r.candidateReport(t, adminToken); report.Compared == n {
			return report
		} else if time.Now().After(deadline) {
			t.Fatalf("compared are %d, want %d: %+v\n%s", report.Compared, n, report, r.log)
		}
	}
}

func (r *running) ask(t *testing.T, user string) (allowed bool) {
	t.Helper()
	status, body := r.do(t, "POST", "/v1/check", fmt.Sprintf(`{"descriptor":{"user":%q}}`, user))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	return strings.HasPrefix(body, `{"allowed":true`)
}

// TestCandidate: a candidate is compared, reloaded, and told of, and changes
// nothing of what callers are answered.
func TestCandidate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	live, tried := filepath.Join(dir, "live.yaml"), filepath.Join(dir, "tried.yaml")
	write(t, live, rulesOf("4 per 1h"))
	write(t, tried, rulesOf("2 per 1h"))
	r := start(t, Settings{PolicyFile: live, Candidate: tried, AdminToken: adminToken, lookEvery: time.Millisecond})
	for i := range 6 {
		if got := r.ask(t, "anna"); got != (i < 4) {
			t.Errorf("request %d is allowed: %t", i+1, got)
		}
	}
	report := r.compared(t, 6)
	if report.BothAdmitted != 2 || report.NewlyDenied != 2 || report.BothDenied != 2 || len(report.TopNewlyDenied) != 1 || report.TopNewlyDenied[0].Key != "anna" ||
		report.Candidate.Version != 1 || report.Live.Hash != r.Policy().Hash || report.Counters != "memory (at most 128 MiB)" || report.KeysHidden {
		t.Errorf("%+v", report)
	}
	if open := r.candidateReport(t, ""); open.NewlyDenied != 2 || len(open.TopNewlyDenied) != 0 || !open.KeysHidden {
		t.Errorf("without a token: %+v", open)
	}
	r.metrics(t, `headgate_candidate_compared_total{outcome="newly_denied"} 2`, `headgate_candidate_differences_total{entry="",kind="newly_denied",rule="login"} 2`,
		`headgate_candidate_not_compared_total{reason="dropped"} 0`, `headgate_candidate_info{hash="`+report.Candidate.Hash+`",version="1"} 1`, "headgate_candidate_waiting 0",
		`headgate_candidate_last_reload_failed 0`)

	// A bad one changes nothing, and is told of.
	replace(t, tried, badRules)
	r.logs(t, `mistake="`+tried+`:`)
	bad := r.candidateReport(t, adminToken)
	if bad.Failed == nil || len(bad.Failed.Mistakes) != 3 || bad.Candidate == nil || bad.Candidate.Hash != report.Candidate.Hash || bad.Compared != 6 {
		t.Errorf("after a bad file: %+v, failed %+v", bad, bad.Failed)
	}
	if open := r.candidateReport(t, ""); open.Failed == nil || open.Failed.Mistakes != nil || strings.Contains(open.Failed.Detail, dir) {
		t.Errorf("without a token: %+v", open.Failed)
	}
	if _, body := r.do(t, "GET", "/readyz", ""); strings.Contains(body, "detail") {
		t.Errorf("the service is said to be unwell: %s", body)
	}
	r.metrics(t, "headgate_candidate_last_reload_failed 1", `headgate_candidate_reloads_total{result="failed"} 1`, "headgate_policy_last_reload_failed 0")

	// Another one begins new figures, on the same counters.
	replace(t, tried, rulesOf("5 per 1h"))
	r.logs(t, "the policy has changed\" policy=candidate")
	for range 2 {
		r.ask(t, "anna")
	}
	report = r.compared(t, 2)
	if report.NewlyAdmitted != 2 || report.Candidate.Version != 2 || report.Failed != nil || len(report.Rules) != 1 {
		t.Errorf("after a change: %+v", report)
	}
	// So does another policy in force; a reload that is asked for reads both.
	replace(t, live, rulesOf("9 per 1h"))
	replace(t, tried, rulesOf("9 per 1h"))
	if status, body := r.reload(t, adminToken); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if report = r.compared(t, 0); report.Candidate.Version != 3 || report.Live.Version != 2 || report.Live.Hash != report.Candidate.Hash {
		t.Errorf("after a reload: %+v", report)
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// logs waits for the log to have the text.
func (r *running) logs(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(within); !strings.Contains(r.log.String(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log has no %s:\n%s", want, r.log)
		}
	}
}

// TestBadCandidate: what is only being tried keeps nothing from starting, and is
// taken once it is mended.
func TestBadCandidate(t *testing.T) {
	t.Parallel()
	tried := filepath.Join(t.TempDir(), "tried.yaml")
	r := start(t, Settings{Candidate: tried, AdminToken: adminToken, lookEvery: time.Millisecond})
	r.do(t, "POST", "/v1/check", checkBody)
	report := r.candidateReport(t, adminToken)
	if report.Candidate != nil || report.Failed == nil || !strings.Contains(report.Failed.Detail, tried) || report.Compared != 0 {
		t.Errorf("%+v, %+v", report, report.Failed)
	}
	write(t, tried, "limits: [{name: auth.createToken, config: [{limit: 1, period: 3600}]}]\n")
	r.logs(t, "the policy has changed\" policy=candidate")
	for range 2 {
		r.do(t, "POST", "/v1/check", checkBody)
	}
	if report = r.compared(t, 2); report.NewlyDenied != 1 || report.Failed != nil {
		t.Errorf("%+v", report)
	}
	// One without a candidate has no report.
	if status, _ := start(t, Settings{}).do(t, "GET", "/v1/candidate", ""); status != http.StatusNotFound {
		t.Errorf("without a candidate: %d", status)
	}
}

// TestSoftHits: requests that are a warning are counted by rule, admitted ones only.
func TestSoftHits(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, "rules:\n  - {name: login, per: [user], limits: [4 per 1h, 5 per 1d], soft: 50%}\n  - {name: quiet, per: [user], limits: [4 per 1h]}\n  - {name: tried, per: [user], limits: [2 per 1h], soft: 99%, mode: shadow}\n")
	r := start(t, Settings{PolicyFile: file})
	for range 6 {
		r.ask(t, "anna")
	}
	r.metrics(t, `headgate_soft_total{rule="login"} 3`, `headgate_soft_total{rule="tried"} 1`)
	if _, metrics := r.do(t, "GET", "/metrics", ""); strings.Contains(metrics, `headgate_soft_total{rule="quiet"}`) {
		t.Error("a rule without a percentage warns")
	}
}

// TestEnvoyCandidate: beside a configuration of envoyproxy/ratelimit, another one is
// tried.
func TestEnvoyCandidate(t *testing.T) {
	t.Parallel()
	r := start(t, Settings{
		GRPCListen: "127.0.0.1:0", AdminToken: adminToken,
		EnvoyConfig: envoyDir(t, "edge.yaml", envoyEdge), Candidate: envoyDir(t, "edge.yaml", strings.ReplaceAll(envoyEdge, "unit: 2", "unit: 1")),
	})
	for range 3 {
		r.shouldLimit(t, "edge", "user", "anna")
	}
	report := r.compared(t, 3)
	if report.BothAdmitted != 1 || report.NewlyDenied != 1 || report.BothDenied != 1 || report.TopNewlyDenied[0].Key != "anna" || report.TopNewlyDenied[0].Rule != "edge.user" {
		t.Errorf("%+v", report)
	}
}
