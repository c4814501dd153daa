package decide_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// TestTexts: the text of a limit is written once for each policy, and for each occasion if
// the limit is none of the policy's.
func TestTexts(t *testing.T) {
	written := 0
	texts := decide.NewTexts(func(l decide.LimitText) decide.LimitText {
		written++
		return l
	})
	rule := headgate.MustRule("api", headgate.PerSecond(2), headgate.Sliding(30, 1500*time.Microsecond))
	tier, override := headgate.MustRule("tiers", headgate.PerMinute(3)), headgate.MustRule("tiers", headgate.PerMinute(4))
	made := func() *policy.Set {
		set, err := policy.New([]policy.Rule{{Limits: rule}, {
			Tariff:    &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{{Value: "pro", Limits: tier}}},
			Overrides: []policy.Override{{Match: []policy.Condition{policy.Equal("user", "anna")}, Limits: override}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	decision := func(r *headgate.Rule, i int) *headgate.Decision {
		return &headgate.Decision{Rule: r, Limit: &r.Limits()[i]}
	}
	p := made()
	texts.Of(p, decision(rule, 0))
	all := written
	for range 2 {
		want := decide.LimitText{Rule: "api", Limit: "30 per 1500us", Algorithm: "sliding_window", Capacity: 30, PeriodMS: 2}
		if got := texts.Of(p, decision(rule, 1)); *got != want || written != all {
			t.Errorf("%+v, %d written; want %+v and %d", *got, written, want, all)
		}
	}
	if got := texts.Of(p, decision(override, 0)); got.Capacity != 4 || written != all {
		t.Errorf("%+v, %d written", *got, written)
	}
	other := headgate.MustRule("other", headgate.PerSecond(9))
	for n := range 2 {
		if got := texts.Of(p, decision(other, 0)); got.Rule != "other" || written != all+1+n {
			t.Errorf("%+v, %d written", *got, written)
		}
	}
	if texts.Of(made(), decision(rule, 0)); written != 2*all+2 {
		t.Errorf("%d written after a reload, want %d", written, 2*all+2)
	}
}
