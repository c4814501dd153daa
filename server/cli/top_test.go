package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/telemetry/insight"
)

// evil is a key that would do harm to a terminal.
const evil = "\x1b[2Jgone\u202e\x00</script>"

// insightServer answers as a server does that knows of one hostile key.
func insightServer(t *testing.T) *httptest.Server {
	t.Helper()
	instances := []insightapi.Instance{{Name: "one", OK: true}, {Name: "two\x1b", Error: "it does not answer: \x1b[31mgone"}}
	now := insightapi.Now{Range: "10m0s", Instances: instances}
	now.Doors = []insight.DoorCounts{{Door: "http", Counts: insight.Counts{Allowed: 300, Denied: 100, Shadow: 5}}}
	now.All = 3
	now.Rules = []insight.RuleCounts{{Rule: "login", Counts: insight.Counts{Allowed: 300, Denied: 100, Shadow: 5}, Before: insight.Counts{Denied: 7}}}
	rule := insightapi.RuleReport{Policy: &insightapi.ShownRule{Limits: []string{"5 per 3s", "20 per 1m"}}}
	rule.Rule.Rule, rule.Counts = "login", insight.Counts{Allowed: 300, Denied: 100, Shadow: 5}
	rule.Rule.Denied = insight.Top{Total: 100, Absent: 2, Keys: []insight.Key{{Key: insight.Name{Raw: evil}, Tier: "free\x1b", Count: 90, Error: 1, Used: 1000}}}
	rule.Near = insight.Top{Total: 100, Absent: 7, Keys: []insight.Key{{Key: insight.Name{Raw: "a"}, Count: 9, Error: 4}, {Key: insight.Name{Raw: "b"}, Count: 8, Error: 1}}}
	denials := insightapi.Denials{Next: "N.1", Lost: 3, Instances: instances, Denials: []insight.Denial{{
		At: 1_800_000_000_000, Rule: "login", Key: insight.Name{Raw: evil}, Limit: "5 per 3s", Capacity: 5, Cost: 2, RetryAfterMS: 1500, Times: 4, Door: "http",
	}}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"title":"Unauthorized","status":401,"detail":"this needs the admin token of the server"}`))
			return
		}
		answers := map[string]any{"/v1/insight/now": now, "/v1/insight/rule": rule, "/v1/insight/denials": denials}
		if err := json.NewEncoder(w).Encode(answers[r.URL.Path]); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestTopAndTail(t *testing.T) {
	plainEnvironment(t)
	s := insightServer(t)
	run := func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		code := Run(context.Background(), append(args, "--server", s.URL), &stdout, &stderr, "")
		return code, stdout.String(), stderr.String()
	}
	if code, _, stderr := run("top"); code != CodeUsage || !strings.Contains(stderr, "needs the admin token") {
		t.Errorf("without a token: %d %s", code, stderr)
	}
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"title":"Forbidden","status":403,"detail":"the server has no admin token"}`))
	}))
	defer refuses.Close()
	var out, stderr bytes.Buffer
	if code := Run(t.Context(), []string{"top", "--server", refuses.URL}, &out, &stderr, ""); code != CodeUsage || !strings.Contains(stderr.String(), "start the server with --admin-token-file") {
		t.Errorf("of a server without a token: %d %s", code, stderr.String())
	}
	t.Setenv("HEADGATE_ADMIN_TOKEN", "0123456789abcdef")
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"top"}, []string{"last 10m0s: 300 requests admitted, 100 denied (25.0 %), 5 denied in shadow", "100       7       5      300  login", "and 2 rules more", `missing: the instance "two\x1b": it does not answer: \x1b[31mgone`}},
		{[]string{"top", "login"}, []string{"limits: 5 per 3s, 20 per 1m", `\x1b[2Jgone\u202e\x00</script>`, "90.0 %", "100 %", `free\x1b`, "any other key: at most 2", "there is no top: the keys are alike, and any other one may have up to 7 as well"}},
		{[]string{"top", "--json"}, []string{`"denied":100`}},
		{[]string{"tail", "--no-follow"}, []string{`denied  login  \x1b[2Jgone\u202e\x00</script>  by 5 per 3s, cost 2, 0 of 5 left, retry after 1.5s, 4 times, through http`}},
		{[]string{"tail", "--no-follow", "--json"}, []string{`{"seq":0,"node":"","at":1800000000000,"rule":"login"`}},
	} {
		code, stdout, stderr := run(tt.args...)
		for _, want := range tt.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("%v: %d\n%s%s\nwants %s", tt.args, code, stdout, stderr, want)
			}
		}
		if strings.ContainsAny(stdout+stderr, "\x1b\x00\u202e") {
			t.Errorf("%v: a terminal would obey %q", tt.args, stdout+stderr)
		}
	}
	for _, args := range [][]string{{"top", "--range", "1s"}, {"top", "--limit", "0"}, {"top", "--watch", "1ms"}, {"tail", "--last", "0"}} {
		if code, _, stderr := run(args...); code != CodeUsage || !strings.Contains(stderr, "must be") {
			t.Errorf("%v: %d %s", args, code, stderr)
		}
	}
}
