package cli

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/config"
)

// TestSuggest: the check that a server proposes is one that it can answer.
func TestSuggest(t *testing.T) {
	const (
		bound  = "{ name: bound, per: [tenant], in_progress: { limit: 1 } }"
		rated  = "{ name: rated, per: [user, ip], limits: [1 per 1m] }"
		failed = "{ name: failed, per: [user], limits: [1 per 1m], charge_on: [401] }"
		tariff = "{ name: tariff, per: [user], limits: { tier: { free: [1 per 1m] } } }"
	)
	tests := []struct{ policy, want string }{
		{"rules: [" + rated + "]", `{"rule":"rated","key":"user42|203.0.113.10"}`},
		{"rules: [" + bound + ", " + rated + "]", `{"rule":"rated","key":"user42|203.0.113.10"}`},
		{"rules: [" + bound + ", " + tariff + "]", `{"rule":"tariff","key":"user42"}`},
		{"rules: [" + rated + "]\nlimits: [{ name: mail, config: [{ limit: 3, period: 60 }] }]", `{"rule":"mail","key":"user42"}`},
		{"rules: [" + bound + "]", ""},
		// What charges by the outcome is reserved, and settled with the status.
		{"rules: [" + rated + "]", `{"descriptor":{"user":"ada","ip":"203.0.113.10","route":"POST /login"}}' http://127.0.0.1:8080/v1/check`},
		{"rules: [" + failed + "]", `"id":"login-1"}' http://127.0.0.1:8080/v1/reserve`},
		{"rules: [" + failed + "]", `{"reservation":"login-1","status":401}' http://127.0.0.1:8080/v1/settle`},
	}
	for _, tt := range tests {
		set, err := config.Parse("policy.yaml", []byte(tt.policy))
		if err != nil {
			t.Fatalf("%s: %v", tt.policy, err)
		}
		var out strings.Builder
		suggest(&out, "http://127.0.0.1:8080", set)
		if got := out.String(); tt.want != "" && !strings.Contains(got, tt.want) || tt.want == "" && strings.Contains(got, `"checks"`) {
			t.Errorf("%s: got\n%swant %q", tt.policy, got, tt.want)
		}
	}
}
