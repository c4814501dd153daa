package app

import (
	"strings"
	"testing"
)

// TestPlainCheckOfAnOutcome: whoever checks where he should reserve is told by the log, at the
// start and then once in a while; whoever reserves is not.
func TestPlainCheckOfAnOutcome(t *testing.T) {
	t.Parallel()
	const rules = "rules:\n  - {name: login, per: [user], limits: [2 per 1h], charge_on: [401]}\n  - {name: all, per: [user], limits: [9 per 1h]}\n"
	file := t.TempDir() + "/policy.yaml"
	write(t, file, rules)
	r := start(t, Settings{PolicyFile: file})
	r.logs(t, "rules charge by the outcome, which this server does not see")
	r.logs(t, "count=1 rules=login")
	const check, warning = `{"descriptor":{"user":"ada"}}`, "a plain check was charged by rules that charge by the outcome"
	if status, body := r.do(t, "POST", "/v1/reserve", check); status != 200 {
		t.Fatal(status, body)
	}
	if strings.Contains(r.log.String(), warning) {
		t.Error("a reservation is warned of")
	}
	for range 3 {
		r.do(t, "POST", "/v1/check", check)
	}
	r.logs(t, warning)
	r.logs(t, "rules=login")
	if n := strings.Count(r.log.String(), warning); n != 1 {
		t.Errorf("warned %d times", n)
	}
}
