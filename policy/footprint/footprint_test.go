package footprint_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/footprint"
)

// ruleOf returns a rule with the limits that counts by the parts.
func ruleOf(name string, per []policy.Part, limits ...headgate.Limit) policy.Rule {
	return policy.Rule{Limits: headgate.MustRule(name, limits...), Per: per}
}

func TestFootprints(t *testing.T) {
	user := []policy.Part{{Entry: "user"}}
	direct := ruleOf("direct", nil, headgate.Sliding(600, time.Minute), headgate.Sliding(30, time.Second))
	direct.Direct = true
	tiers := policy.Rule{
		Per: []policy.Part{{Entry: "api_key"}, {Entry: "ip", Bits6: 64}},
		Tariff: &policy.Tariff{
			Entry: "t",
			Tiers: []policy.Tier{{Value: "a", Limits: headgate.MustRule("tiers", headgate.PerMinute(1))}},
			Other: headgate.MustRule("tiers", headgate.PerHour(5), headgate.PerMinute(1), headgate.Sliding(100, time.Second)),
		},
	}
	dear := ruleOf("dear", user, headgate.Sliding(1000, time.Minute))
	dear.Cost = 10
	guessed := ruleOf("guessed", user, headgate.PerMinute(5), headgate.Limit{Algorithm: headgate.Penalty, Count: 3, Period: time.Minute, Block: time.Hour})
	reports := policy.Rule{
		Name: "reports", Per: user, InProgress: &policy.InProgress{Limit: 3, Shared: true},
		Overrides: []policy.Override{{Match: []policy.Condition{policy.Equal("user", "ada")}, InProgress: 10}},
	}
	both := ruleOf("both", nil, headgate.PerMinute(20))
	both.InProgress = &policy.InProgress{Limit: 100, Shared: true}
	here := policy.Rule{Name: "here", Per: user, InProgress: &policy.InProgress{Limit: 3}}
	s, err := policy.New([]policy.Rule{reports, both, here, ruleOf("all", nil, headgate.PerMinute(20)), ruleOf("user", user, headgate.PerMinute(20)), direct, tiers, dear, guessed})
	if err != nil {
		t.Fatal(err)
	}
	want := []footprint.Footprint{
		{Rule: "reports", Bytes: 8 + 3 + 8 + 16 + 80 + 10*88, Permits: 8 + 3 + 8 + 16 + 80 + 10*88},
		{Rule: "both", Bytes: 120 + 3 + 5 + 24 + 8 + 3 + 5 + 80 + 100*120, Permits: 8 + 3 + 5 + 80 + 100*120, One: true},
		{Rule: "here"},
		{Rule: "all", Bytes: 120 + 3 + 4 + 24, One: true},
		{Rule: "user", Bytes: 120 + 3 + 5 + 16 + 24, One: false},
		{Rule: "direct", Bytes: 120 + 3 + 7 + 16 + 1 + 2*(13+6*600), One: false},
		{Rule: "tiers", Bytes: 120 + 3 + 6 + 22 + 1 + 18 + 1 + 2*23 + 2*(13+6*100), One: false},
		{Rule: "dear", Bytes: 120 + 3 + 5 + 16 + 1 + 2*(13+11*100), One: false},
		{Rule: "guessed", Bytes: 120 + 3 + 8 + 16 + 1 + 2*23, One: false},
	}
	got := footprint.Of(s)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if got[1].PerMillion() != got[1].Bytes || got[0].PerMillion() != 1e6*got[0].Bytes {
		t.Error("a million keys take otherwise")
	}
}
