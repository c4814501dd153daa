package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/servers"
)

// trial is what the tests look at in the report of a candidate.
type trial struct {
	Compared      int64 `json:"compared"`
	BothAdmitted  int64 `json:"both_admitted"`
	BothDenied    int64 `json:"both_denied"`
	NewlyDenied   int64 `json:"newly_denied"`
	NewlyAdmitted int64 `json:"newly_admitted"`
	Rules         []struct {
		Rule  string `json:"rule"`
		Tiers []struct {
			Tier        string `json:"tier"`
			NewlyDenied int64  `json:"newly_denied"`
		} `json:"tiers"`
	} `json:"rules"`
	Top []struct {
		Key   string `json:"key"`
		Count int64  `json:"count"`
	} `json:"top_newly_denied"`
}

// compared is the report of a server, once so many requests were compared there.
func (s *server) compared(t *testing.T, token string, n int64) trial {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var r trial
	until(t, fmt.Sprintf("%d requests are compared", n), func() bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/v1/candidate", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		r = trial{}
		err = json.NewDecoder(response.Body).Decode(&r)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v", response.StatusCode, err)
		}
		return r.Compared == n
	})
	return r
}

// Two servers try a candidate on one store: its counters are theirs together, and
// what is in force is charged as if there were none.
func TestCandidateIsShared(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, store *servers.Server) {
		const token = "an-admin-token-of-these-tests"
		tariff := func(free int) string {
			return policyFile(t, fmt.Sprintf("rules:\n  - name: api\n    per: [api_key]\n    limits: { tier: { free: [%d per 300d], pro: [50 per 300d] } }\n", free))
		}
		live, next := tariff(40), tariff(10)
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		nodes := make([]*server, 2)
		for i := range nodes {
			nodes[i] = serve(t, "--config", live, "--candidate", next, "--store", patiently(store.URL()), "--store-timeout", "30s", "--hash-key", hashKey, "--admin-token-file", file)
		}
		const each = 30
		allowed := 0
		for i := range 2 * each {
			for tier, key := range map[string]string{"free": secret, "pro": secret + "-pro"} {
				body := fmt.Sprintf(`{"descriptor":{"tier":%q,"api_key":%q}}`, tier, key)
				if parse(t, nodes[i%2].post(t, "/v1/check", body).text).Allowed && tier == "free" {
					allowed++
				}
			}
		}
		if allowed != 40 {
			t.Errorf("%d were admitted, want the 40 of what is in force", allowed)
		}
		var sum trial
		for _, s := range nodes {
			r := s.compared(t, token, 2*each)
			sum.BothAdmitted += r.BothAdmitted
			sum.BothDenied += r.BothDenied
			sum.NewlyDenied += r.NewlyDenied
			sum.NewlyAdmitted += r.NewlyAdmitted
			if len(r.Rules) != 1 || r.Rules[0].Rule != "api" || r.Rules[0].Tiers[0].Tier != "free" || r.Rules[0].Tiers[0].NewlyDenied < 10 || len(r.Top) == 0 || r.Top[0].Count < 10 {
				t.Errorf("%+v", r)
			}
		}
		// Which of the requests at the border of a limit the candidate sees first
		// depends on the servers' queues; how many it admits does not.
		tried, inForce := sum.BothAdmitted+sum.NewlyAdmitted, sum.BothAdmitted+sum.NewlyDenied
		if tried != 10+50 || inForce != 40+50 || sum.BothDenied+sum.NewlyDenied != 4*each-tried || sum.NewlyAdmitted > 5 {
			t.Errorf("the candidate admits %d and what is in force %d, want 60 and 90: %+v", tried, inForce, sum)
		}
		keys, err := store.Do(t.Context(), "KEYS", "*")
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(keys); strings.Count(text, "hg-candidate:api ") != 2 || strings.Count(text, "hg:api ") != 2 || strings.Contains(text, secret) {
			t.Errorf("the keys are %s", text)
		}
		for _, words := range [][]string{{"--admin-token-file", file}, nil} {
			r := runProgram(t, append([]string{"candidate", "--server", nodes[0].base}, words...)...)
			if shown := strings.Contains(r.stdout, "TOP NEWLY DENIED"); r.code != 0 || !strings.Contains(r.stdout, "newly denied") || shown != (words != nil) || strings.Contains(r.stdout, secret) {
				t.Errorf("headgate candidate %v: exit code %d\n%s%s", words, r.code, r.stdout, r.stderr)
			}
		}
	})
}

// The hash key is changed on one server after the other: a client has one allowance,
// whichever of them it asks.
func TestHashKeyIsRotated(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, store *servers.Server) {
		dir := t.TempDir()
		key := func(name, text string) string {
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}
		before, after := key("before", "0123456789abcdef-before"), key("after", "0123456789abcdef-after")
		policy := policyFile(t, "rules:\n  - { name: api, per: [api_key], limits: [20 per 300d] }\n")
		start := func(keys ...string) *server {
			return serve(t, append([]string{"--config", policy, "--store", patiently(store.URL()), "--store-timeout", "30s"}, keys...)...)
		}
		nodes := []*server{start("--hash-key-file", before), start("--hash-key-file", after, "--old-hash-key-file", before)}
		allowed := 0
		for i := range 60 {
			body := fmt.Sprintf(`{"descriptor":{"api_key":%q}}`, secret)
			if i%4 >= 2 {
				body = fmt.Sprintf(`{"checks":[{"rule":"api","key":%q}]}`, secret)
			}
			if parse(t, nodes[i%2].post(t, "/v1/check", body).text).Allowed {
				allowed++
			}
		}
		if allowed != 20 {
			t.Errorf("%d were admitted, want 20", allowed)
		}
	})
}
