package app

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/insightapi"
)

// insight asks a path below /v1/insight/ with the admin token.
func (r *running) insight(t *testing.T, path string, to any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.base+"/v1/insight/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(to); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v", path, response.StatusCode, err)
	}
}

const tariff = `rules:
  - name: login
    per: [user]
    limits:
      tier: { pro: [4 per 1h], "*": [2 per 1h] }
`

// TestInsight: what the doors decide is known, with tiers, doors and the change of a policy.
func TestInsight(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "live.yaml")
	write(t, file, tariff)
	r := start(t, Settings{PolicyFile: file, AdminToken: adminToken, Instance: "one", lookEvery: time.Millisecond})
	for range 5 {
		r.do(t, "POST", "/v1/check", `{"descriptor":{"user":"anna","tier":"pro"}}`)
		r.do(t, "POST", "/v1/check", `{"descriptor":{"user":"ben"}}`)
		r.do(t, "POST", "/v1/peek", `{"descriptor":{"user":"ben"}}`)
	}
	var now insightapi.Now
	r.insight(t, "now", &now)
	if len(now.Doors) != 1 || now.Doors[0].Door != "http" || now.Doors[0].Allowed != 6 || now.Doors[0].Denied != 4 || now.Instances[0].Name != "one" {
		t.Errorf("now: %+v", now)
	}
	var rule insightapi.RuleReport
	r.insight(t, "rule?rule=login", &rule)
	tiers := make(map[string]int64)
	for _, tier := range rule.Tiers {
		tiers[tier.Tier] = tier.Denied
	}
	if tiers["pro"] != 1 || tiers["*"] != 3 || rule.Rule.Denied.Keys[0].Tier != "*" || len(rule.Policy.Tiers) != 2 {
		t.Errorf("tiers: %+v", rule)
	}
	var key insightapi.KeyReport
	r.insight(t, "key?rule=login&key="+rule.Rule.Denied.Keys[1].Key.ID(), &key)
	if key.Key.Raw != "anna" || len(key.States) != 1 || key.States[0].Capacity != 4 || key.States[0].Remaining != 0 || key.Denials[0].Door != "http" || key.Denials[0].Version != 1 {
		t.Errorf("key: %+v", key)
	}
	var store insightapi.Stores
	r.insight(t, "store", &store)
	if s := store.Stores[0]; s.State != "ok" || s.Range.Calls < 15 || s.Range.Errors != 0 || s.Range.P99 == 0 {
		t.Errorf("store: %+v", s.Range)
	}

	replace(t, file, strings.Replace(tariff, "4 per", "8 per", 1)+"  - name: other\n    per: all\n    limits: [5 per 1s]\n")
	deadline := time.Now().Add(within)
	for r.Policy().Version == 1 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	replace(t, file, "rules: 7\n")
	var policy insightapi.PolicyReport
	for deadline := time.Now().Add(within); len(policy.Changes) < 3 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		r.insight(t, "policy", &policy)
	}
	if c := policy.Changes; len(c) < 3 || c[0].Failed == "" || c[0].Version != 2 || len(c[1].Added) != 1 || c[1].Added[0] != "other" ||
		len(c[1].Changed) != 1 || c[1].Changed[0].Before != `"pro": 4 per 1h; others: 2 per 1h, per user` || c[len(c)-1].Because != "the start" {
		t.Errorf("changes: %+v", c)
	}
	r.metrics(t, `headgate_insight_left_out_total{what="decisions"} 0`)

	if status, _ := r.do(t, "GET", "/v1/insight/now", ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: status %d", status)
	}
	r.reload(t, adminToken)
	var audit insightapi.AuditReport
	if r.insight(t, "audit", &audit); len(audit.Entries) != 1 || audit.Entries[0].What != "reload" || audit.Entries[0].Who == "" || audit.Entries[0].OK {
		t.Errorf("audit: %+v", audit)
	}
}

// TestTierAfterReload: what was decided before a reload and is counted after it is of the tier
// that it was decided by.
func TestTierAfterReload(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "live.yaml")
	write(t, file, tariff)
	src, err := newSource(&Settings{PolicyFile: file, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	tiers := func() []*headgate.Rule {
		of := src.now().Rule("login").Tariff
		return []*headgate.Rule{of.Tiers[0].Limits, of.Other}
	}
	old := tiers()
	replace(t, file, strings.Replace(tariff, "4 per", "8 per", 1))
	if _, result, err := src.reload("a test"); err != nil || result != changed {
		t.Fatalf("%v, %v", result, err)
	}
	for _, of := range [][]*headgate.Rule{old, tiers()} {
		for i, want := range []string{"pro", "*"} {
			if got := src.tierOf(of[i]); got != want {
				t.Errorf("the tier %q is told as %q", want, got)
			}
		}
	}
	if got := src.tierOf(headgate.MustRule("login", headgate.PerHour(4))); got != "" {
		t.Errorf("limits of neither policy are told as of the tier %q", got)
	}
}

// TestFlowPage: rules that bound what is in progress, bounds of a gateway's file and adaptive
// limits of its upstreams are all shown.
func TestFlowPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules, file := filepath.Join(dir, "limits.yaml"), filepath.Join(dir, "gateway.yaml")
	write(t, rules, "rules:\n  - name: reports\n    per: [ip]\n    in_progress: { limit: 3, shared: true }\n  - name: exports\n    per: [ip]\n    in_progress: 2\n")
	write(t, file, "upstreams:\n  - { name: shop, targets: ['http://127.0.0.1:1'], load: { initial: 9 } }\nroutes:\n  - match: /\nconcurrency:\n  - { name: all, per: all, limit: 50 }\n")
	r := start(t, Settings{PolicyFile: rules, Gateway: &GatewaySettings{Listen: "127.0.0.1:0", File: file}, AdminToken: adminToken})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Addr("gateway").String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	var report insightapi.FlowReport
	r.insight(t, "flow", &report)
	var got []string
	for _, g := range report.Gates {
		got = append(got, g.Name+" "+g.Kind)
		if g.Held != 0 || g.Kind != "adaptive" && g.Limit != map[string]int64{"all": 50, "exports": 2, "reports": 3}[g.Name] || g.Limit < 1 {
			t.Errorf("%+v", g)
		}
	}
	if want := []string{"all permits", "exports permits", "reports shared permits", "shop adaptive"}; !slices.Equal(got, want) {
		t.Errorf("the page Flow has %q, want %q", got, want)
	}
}

// TestHistoryOfOverrides: a change says that a client was given other limits, and not whom.
func TestHistoryOfOverrides(t *testing.T) {
	t.Parallel()
	text := "rules:\n  - name: api\n    per: [user]\n    limits: [5 per 1m]\n"
	before, err := config.Parse("policy", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	after, err := config.Parse("policy", []byte(text+"    overrides:\n      - { match: { user: ada }, limits: [50 per 1m] }\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := difference(before, decide.Policy{Set: after, Version: 2}, "a test")
	if len(c.Changed) != 1 || c.Changed[0].Before != "5 per 1m, per user" || c.Changed[0].After != "5 per 1m, 1 override (50 per 1m), per user" {
		t.Errorf("the change: %+v", c)
	}
}

func TestNoInsight(t *testing.T) {
	t.Parallel()
	r := start(t, Settings{NoInsight: true, AdminToken: adminToken})
	if status, _ := r.do(t, "GET", "/v1/insight/now", ""); status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
	if _, metrics := r.do(t, "GET", "/metrics", ""); strings.Contains(metrics, "headgate_insight") {
		t.Error("there are metrics of what is not there")
	}
	r = start(t, Settings{})
	if status, _ := r.do(t, "GET", "/v1/insight/now", ""); status != http.StatusForbidden {
		t.Errorf("without an admin token: status %d", status)
	}
}

// TestSecretTiers has a tariff by a secret, which nobody is shown.
func TestSecretTiers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "live.yaml")
	text := "rules:\n  - name: login\n    per: [user]\n    limits:\n      api_key: { sesame-open: [4 per 1h], \"*\": [2 per 1h] }\n"
	write(t, file, text)
	r := start(t, Settings{PolicyFile: file, AdminToken: adminToken, lookEvery: time.Millisecond})
	r.do(t, "POST", "/v1/check", `{"descriptor":{"user":"anna","api_key":"sesame-open"}}`)
	replace(t, file, strings.Replace(text, "4 per", "8 per", 1))
	for deadline := time.Now().Add(within); r.Policy().Version == 1 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	for _, path := range []string{"policy", "rule?rule=login", "now", "clients?rule=login"} {
		var answer json.RawMessage
		if r.insight(t, path, &answer); strings.Contains(string(answer), "sesame") {
			t.Errorf("%s shows a secret: %s", path, answer)
		}
	}
	var policy insightapi.PolicyReport
	var rule insightapi.RuleReport
	r.insight(t, "policy", &policy)
	r.insight(t, "rule?rule=login", &rule)
	if tier := policy.Rules[0].Tiers[0].Tier; len(rule.Tiers) != 1 || tier != rule.Tiers[0].Tier || len(policy.Changes) != 2 || !strings.Contains(policy.Changes[0].Changed[0].After, tier+`": 8 per`) {
		t.Errorf("the tier is not shown by one name: %+v, %+v", policy, rule.Tiers)
	}
}

// TestHistoryFile: what a server was asked before it was started anew, it shows.
func TestHistoryFile(t *testing.T) {
	t.Parallel()
	settings := Settings{History: filepath.Join(t.TempDir(), "history"), AdminToken: adminToken, Instance: "one"}
	first := start(t, settings)
	for range 3 {
		first.do(t, "POST", "/v1/check", `{"checks":[{"rule":"auth.createToken","key":"anna"}]}`)
	}
	end := func(r *running) {
		r.stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		r.ended <- nil
	}
	end(first)

	second := start(t, settings)
	defer end(second) // It writes the file.
	var now insightapi.Now
	second.insight(t, "now?range=24h&until="+strconv.FormatInt(time.Now().Add(time.Minute).Unix(), 10), &now)
	if now.Total.Allowed != 3 || len(now.Rules) != 1 || now.Rules[0].Rule != "auth.createToken" || now.Rules[0].Allowed != 3 || now.Past == nil || now.Past.Error != "" {
		t.Errorf("all %+v, rules %+v, past %+v", now.Total, now.Rules, now.Past)
	}
	var marks insightapi.Marks
	second.insight(t, "marks?range=24h&until="+strconv.FormatInt(time.Now().Add(time.Minute).Unix(), 10), &marks)
	if starts := slices.DeleteFunc(marks.Marks, func(m insightapi.Mark) bool { return m.Kind != "start" }); len(starts) != 2 {
		t.Errorf("the starts: %+v", starts)
	}
}
