package policy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
)

// TestConsistency: how a rule counts stands in its checks and is explained.
func TestConsistency(t *testing.T) {
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("leased", headgate.PerSecond(100)), Hints: headgate.Hints{Consistency: headgate.Leased, DenyCache: headgate.DenyCacheOn}},
		{Limits: headgate.MustRule("plain", headgate.PerSecond(100))},
		{Limits: headgate.MustRule("named", headgate.PerSecond(100)), Hints: headgate.Hints{Consistency: headgate.Async, DenyCache: headgate.DenyCacheOff}, Direct: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	checks, err := set.Match(policy.Descriptor{}, 1, nil)
	if err != nil || len(checks) != 2 ||
		checks[0].Consistency != headgate.Leased || checks[0].DenyCache != headgate.DenyCacheOn ||
		checks[1].Consistency != headgate.Strict || checks[1].DenyCache != headgate.DenyCacheDefault {
		t.Errorf("got %+v, %v; want what each rule says", checks, err)
	}
	if c, err := set.Check("named", "k", 1); err != nil || c.Consistency != headgate.Async || c.DenyCache != headgate.DenyCacheOff {
		t.Errorf("got %+v, %v; want what the rule says", c, err)
	}
	e := explain.Request(set, policy.Descriptor{}, 1, nil)
	if text := e.String(); strings.Count(text, "counted: leased") != 1 || strings.Count(text, "denials are remembered: yes") != 1 {
		t.Errorf("it is explained as\n%s", text)
	}
}

// TestConsistencyMistakes: what needs the store's answer each time is refused, in
// whichever of the rule's limits it stands.
func TestConsistencyMistakes(t *testing.T) {
	leaky := headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 5, Period: time.Second}
	plain := headgate.MustRule("r", headgate.PerSecond(100))
	for name, rule := range map[string]policy.Rule{
		"its own":    {Limits: headgate.MustRule("r", headgate.PerSecond(100), leaky), Hints: headgate.Hints{Consistency: headgate.Async}},
		"a tier":     {Tariff: &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{{Value: "free", Limits: headgate.MustRule("r", leaky)}}, Other: plain}, Hints: headgate.Hints{Consistency: headgate.Leased}},
		"a penalty":  {Limits: headgate.MustRule("r", headgate.PerSecond(100), headgate.Blocking(3, time.Minute, time.Minute, 0)), Hints: headgate.Hints{Consistency: headgate.Leased}},
		"no such":    {Limits: plain, Hints: headgate.Hints{Consistency: 9}},
		"no such on": {Limits: plain, Hints: headgate.Hints{DenyCache: 9}},
	} {
		if _, err := policy.New([]policy.Rule{rule}); !errors.Is(err, headgate.ErrInvalid) || strings.Count(err.Error(), "consistency")+strings.Count(err.Error(), "deny_cache") == 0 {
			t.Errorf("%s: got %v, want an error that names the field", name, err)
		}
	}
}
