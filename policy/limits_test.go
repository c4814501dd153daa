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
		hashed   []policy.Entry
		want     string
		override int
	}{
		{"api", policy.Descriptor{{Name: "user", Value: "ada"}, {Name: "tier", Value: "pro"}}, nil, "500 per 1m", 1},
		{"api", policy.Descriptor{{Name: "user", Value: "bob"}, {Name: "tier", Value: "pro"}}, nil, "50 per 1m", 0},
		{"api", nil, nil, "5 per 1m", 0},
		{"plain", nil, nil, "7 per 1m", 0},
		{"busy", nil, nil, "", 0},
		{"nothing", nil, nil, "", 0},
	} {
		limits, override := set.Limits(tt.rule, tt.d, tt.hashed...)
		got := ""
		if limits != nil {
			got = limits.Limits()[0].String()
		}
		if got != tt.want || override != tt.override {
			t.Errorf("%s of %v, %v: %q, override %d", tt.rule, tt.d, tt.hashed, got, override)
		}
	}
}

// TestLimitsOfHash: what is known by the hash of a secret has the override and the tier that
// requests with the secret have.
func TestLimitsOfHash(t *testing.T) {
	t.Parallel()
	of := func(n int64) *headgate.Rule { return headgate.MustRule("api", headgate.PerMinute(n)) }
	hasher, err := policy.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	hash := func(value string) string { return hasher.Hash("api_key", value) }
	override := func(n int64, match ...policy.Condition) policy.Override {
		return policy.Override{Match: match, Limits: of(n)}
	}
	set, err := policy.New([]policy.Rule{{
		Name: "api", Per: []policy.Part{{Entry: "api_key"}},
		Tariff: &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{{Value: "pro", Limits: of(50)}, {Value: "free", Limits: of(5)}}},
		Overrides: []policy.Override{
			override(1, policy.Condition{Entry: "api_key", Equals: []string{"ended"}}),
			override(2, policy.Hashed("api_key", hash("other"), hash("by hash"))),
			override(3, policy.Condition{Entry: "api_key", Equals: []string{"clear", "by value"}}),
			override(4, policy.Hashed("api_key", hash("both")), policy.Condition{Entry: "user", Equals: []string{"ada"}}),
		},
	}}, policy.SubjectTable(policy.Subjects{
		Table: []policy.Subject{{Key: policy.HashMark + hash("in the table"), Entries: []policy.Entry{{Name: "tier", Value: "pro"}}}},
		Other: []policy.Entry{{Name: "tier", Value: "free"}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		secret   string
		d        policy.Descriptor
		want     string
		override int
	}{
		{"by hash", nil, "2 per 1m", 2},
		{"by value", nil, "3 per 1m", 3},
		{"both", policy.Descriptor{{Name: "user", Value: "ada"}}, "4 per 1m", 4},
		{"both", policy.Descriptor{{Name: "user", Value: "bob"}}, "5 per 1m", 0},
		{"in the table", nil, "50 per 1m", 0},
		{"in the table", policy.Descriptor{{Name: "tier", Value: "free"}}, "50 per 1m", 0},
		{"unknown", nil, "5 per 1m", 0},
		{"unknown", policy.Descriptor{{Name: "tier", Value: "pro"}}, "50 per 1m", 0},
	} {
		limits, override := set.Limits("api", tt.d, policy.Entry{Name: "api_key", Value: hash(tt.secret)})
		if got := limits.Limits()[0].String(); got != tt.want || override != tt.override {
			t.Errorf("%s with %v: %s, override %d, want %s, %d", tt.secret, tt.d, got, override, tt.want, tt.override)
		}
	}
}
