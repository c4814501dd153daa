package config

import (
	"os"
	"strings"
	"testing"
)

// TestEnvoyQuota: the example has no warnings, and what lets requests pass without a share has.
func TestEnvoyQuota(t *testing.T) {
	data, err := os.ReadFile("../examples/envoy/quota.yaml")
	if err != nil {
		t.Fatal(err)
	}
	example := string(data)
	const bucket = `[{ "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings, `
	for _, c := range []struct{ name, text, want string }{
		{"the example", example, ""},
		{"between brackets", "{ " + strings.Repeat("a: [{ ", 25) + "a: " + bucket + "}]" + strings.Repeat(" }]", 25) + " }", "HG026: the bucket has no no_assignment_behavior"},
		{"an open fallback", strings.Replace(example, "DENY_ALL", "ALLOW_ALL", 1), "quota.yaml:48:39: HG026: requests pass before the Envoy has a share; write fallback_rate_limit: { blanket_rule: DENY_ALL }"},
		{"what was assigned goes on", strings.Replace(example, "fallback_rate_limit: { blanket_rule: DENY_ALL }\n                                    deny", "reuse_last_assignment: {}\n                                    deny", 1), "HG026: requests pass when the share of the Envoy has ended"},
		{"no behavior", "a: " + bucket + "}]", "quota.yaml:1:5: HG026: the bucket has no no_assignment_behavior, so requests may pass before the Envoy has a share; add no_assignment_behavior: { fallback_rate_limit: { blanket_rule: DENY_ALL } }\nquota.yaml:1:5: HG026: the bucket has no expired_assignment_behavior"},
		{"a limit of its own", "a: " + bucket + "noAssignmentBehavior: { fallbackRateLimit: { tokenBucket: { maxTokens: 5 } } }, expiredAssignmentBehavior: { fallbackRateLimit: { blanketRule: DENY_ALL } } }]", "requests pass before"},
		{"rare reports", strings.Replace(example, "reporting_interval: 5s", "reporting_interval: 60s", 1), "HG027: the Envoy may report each 1m0s, and what it is assigned is to be renewed each 5s; write 5s"},
	} {
		warnings, is := EnvoyQuota("quota.yaml", []byte(c.text))
		var got []string
		for _, w := range warnings {
			got = append(got, w.String())
		}
		if text := strings.Join(got, "\n"); !is || !strings.Contains(text, c.want) || c.want == "" && text != "" {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", c.name, is, text, c.want)
		}
	}
	for _, text := range []string{"rules: []", "", "a: [", "- 1"} {
		if _, is := EnvoyQuota("x", []byte(text)); is {
			t.Errorf("%q is taken for a configuration of Envoy", text)
		}
	}
}
