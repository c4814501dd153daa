package policy_test

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// TestLimits: what counts a key is found without the conditions of its rule.
func TestLimits(t *testing.T) {
	t.Parallel()
	of := func(n int64) *headgate.Rule { return headgate.MustRule("api", headgate.PerMinute(n)) }
	user := []policy.Part{{Entry: "user"}}
	set, err := policy.New([]policy.Rule{
		{
			Name: "api", Per: user, Match: []policy.Condition{{Entry: "route", Equals: []string{"GET /"}}},
			Tariff:    &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{{Value: "pro", Limits: of(50)}}, Other: of(5)},
			Overrides: []policy.Override{{Match: []policy.Condition{{Entry: "user", Equals: []string{"ada"}}}, Limits: of(500)}},
		},
		{Name: "plain", Per: user, Limits: headgate.MustRule("plain", headgate.PerMinute(7))},
		{Name: "busy", Per: user, InProgress: &policy.InProgress{Limit: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		rule     string
		d        policy.Descriptor
		want     string
		override int
	}{
		{"api", policy.Descriptor{{Name: "user", Value: "ada"}, {Name: "tier", Value: "pro"}}, "500 per 1m", 1},
		{"api", policy.Descriptor{{Name: "user", Value: "bob"}, {Name: "tier", Value: "pro"}}, "50 per 1m", 0},
		{"api", nil, "5 per 1m", 0},
		{"plain", nil, "7 per 1m", 0},
		{"busy", nil, "", 0},
		{"nothing", nil, "", 0},
	} {
		limits, override := set.Limits(tt.rule, tt.d)
		got := ""
		if limits != nil {
			got = limits.Limits()[0].String()
		}
		if got != tt.want || override != tt.override {
			t.Errorf("%s of %v: %q, override %d", tt.rule, tt.d, got, override)
		}
	}
}
