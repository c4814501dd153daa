package lint

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

func TestInProgress(t *testing.T) {
	is := func(entry string, values ...string) policy.Condition {
		return policy.Condition{Entry: entry, Equals: values}
	}
	for _, c := range []struct {
		name string
		rule policy.Rule
		want string // the code, and "" for no warning
	}{
		{"a number", policy.Rule{InProgress: &policy.InProgress{Limit: 3}}, ""},
		{"a cost above it", policy.Rule{InProgress: &policy.InProgress{Limit: 3}, Cost: 4}, NeverFits},
		{"a cost that fits", policy.Rule{InProgress: &policy.InProgress{Limit: 3}, Cost: 3}, ""},
		{"a dear route", policy.Rule{InProgress: &policy.InProgress{Limit: 3}, Costs: &policy.Costs{Entry: "route", Values: map[string]int64{"GET /": 4}}}, NeverFits},
		{"a tier of less", policy.Rule{InProgress: &policy.InProgress{Entry: "tier", Values: map[string]int64{"free": 1}, Limit: 3}, Cost: 2}, NeverFits},
		{"an override of less", policy.Rule{InProgress: &policy.InProgress{Limit: 3}, Cost: 2, Overrides: []policy.Override{{Match: []policy.Condition{is("user", "ada")}, InProgress: 1}}}, NeverFits},
		{"an open tariff", policy.Rule{InProgress: &policy.InProgress{Entry: "tier", Values: map[string]int64{"free": 1}}}, OpenTariff},
		{"a tariff of all that match", policy.Rule{Match: []policy.Condition{is("tier", "free")}, InProgress: &policy.InProgress{Entry: "tier", Values: map[string]int64{"free": 1}}}, ""},
		{"a wait without a queue", policy.Rule{InProgress: &policy.InProgress{Limit: 3, Wait: time.Second}}, NoQueue},
		{"a wait with a queue", policy.Rule{InProgress: &policy.InProgress{Limit: 3, Wait: time.Second, Queue: 9}}, ""},
		{"a short ttl", policy.Rule{InProgress: &policy.InProgress{Limit: 3, Shared: true, TTL: 999 * time.Millisecond}}, ShortTTL},
		{"a ttl", policy.Rule{InProgress: &policy.InProgress{Limit: 3, Shared: true, TTL: time.Second}}, ""},
		{"the usual ttl", policy.Rule{InProgress: &policy.InProgress{Limit: 3, Shared: true}}, ""},
		{"a stream", policy.Rule{Match: []policy.Condition{is("route", "GET /v1/events")}, InProgress: &policy.InProgress{Limit: 3}}, Streams},
		{"a stream by route", policy.Rule{Match: []policy.Condition{is("path", "/ws")}, Per: []policy.Part{{Entry: "path"}}, InProgress: &policy.InProgress{Limit: 3}}, Streams},
		{"a stream by client", policy.Rule{Match: []policy.Condition{is("route", "GET /v1/events"), {Entry: "user"}}, Per: []policy.Part{{Entry: "user"}}, InProgress: &policy.InProgress{Limit: 3}}, ""},
		{"no stream", policy.Rule{Match: []policy.Condition{is("route", "GET /v1/upstream")}, InProgress: &policy.InProgress{Limit: 3}}, ""},
		{"a stream that is rated only", policy.Rule{Match: []policy.Condition{is("route", "GET /v1/events")}, Limits: headgate.MustRule("rule", headgate.PerSecond(1))}, ""},
	} {
		c.rule.Name = "rule"
		set, err := policy.New([]policy.Rule{c.rule})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got string
		for _, w := range Warnings(set) {
			got += w.Code
		}
		if got != c.want {
			t.Errorf("%s: lint says %q of it, want %q: %v", c.name, got, c.want, Warnings(set))
		}
	}
}

// TestRateless: rules that bound only what is in progress neither limit nor repeat rates.
func TestRateless(t *testing.T) {
	bound := &policy.InProgress{Limit: 3}
	user := []policy.Part{{Entry: "user"}}
	set, err := policy.New([]policy.Rule{
		{Name: "one", InProgress: bound, Per: user},
		{Name: "two", InProgress: bound, Per: user},
		{Name: "none", InProgress: bound, Match: []policy.Condition{policy.Absent("user")}},
		{Name: "rated", Limits: headgate.MustRule("rated", headgate.PerSecond(1)), Per: user},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := Warnings(set)
	if len(got) != 1 || got[0].Code != Uncaught || got[0].Rule != "rated" {
		t.Errorf("lint says %v", got)
	}
}
