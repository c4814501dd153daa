package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// bounds writes what bounds a request as rule=key units/limit.
func bounds(out *Outcome) string {
	var texts []string
	for i := range out.Bounds {
		b := &out.Bounds[i]
		text := fmt.Sprintf("%s=%s %d/%d", b.Rule.Name, b.Key, b.Units, b.Limit)
		if b.Shadow {
			text += " shadow"
		}
		if b.Old {
			text += " old"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func TestBounds(t *testing.T) {
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	user := []Part{{Entry: "user"}}
	set, err := New([]Rule{
		{Name: "all", InProgress: &InProgress{Limit: 8}},
		{Name: "reports", Match: []Condition{Equal("route", "POST /reports")}, Per: user, Cost: 2, InProgress: &InProgress{Limit: 3}, Limits: headgate.MustRule("reports", headgate.PerHour(60))},
		{
			Name: "tiers", Per: user, InProgress: &InProgress{Entry: "tier", Values: map[string]int64{"pro": 5}},
			Overrides: []Override{
				{Match: []Condition{Equal("user", "ada")}, InProgress: 20, Until: noon.Add(time.Second)},
				{Match: []Condition{Equal("user", "eve")}, InProgress: 30, Until: noon},
			},
		},
		{Name: "shadow", Match: []Condition{Equal("user", "bob")}, Mode: ModeShadow, InProgress: &InProgress{Limit: 1}},
		{Name: "free", InProgress: &InProgress{Limit: 1}, Costs: &Costs{Entry: "route", Values: map[string]int64{"GET /dear": 7}}},
		{Name: "exports", Match: []Condition{Equal("route", "POST /export")}, Replaces: []string{"all"}, InProgress: &InProgress{Limit: 2}},
		{Name: "rated", Match: []Condition{Equal("user", "ada")}, Limits: headgate.MustRule("rated", headgate.PerHour(1))},
	}, Clock(func() time.Time { return noon }))
	if err != nil {
		t.Fatal(err)
	}
	if !set.Bounds() {
		t.Error("the set says that it has no bounds")
	}
	for _, c := range []struct {
		d      Descriptor
		cost   int64
		want   string
		checks string
	}{
		{nil, 1, "all= 1/8", ""},
		{Descriptor{{"route", "POST /reports"}, {"user", "kim"}}, 1, "all= 1/8, reports=kim 2/3", "reports"},
		{Descriptor{{"route", "POST /reports"}, {"user", "kim"}}, 3, "all= 3/8, reports=kim 6/3", "reports"},
		{Descriptor{{"user", "kim"}, {"tier", "pro"}}, 1, "all= 1/8, tiers=kim 1/5", ""},
		{Descriptor{{"user", "kim"}, {"tier", "free"}}, 1, "all= 1/8", ""},
		{Descriptor{{"user", "ada"}, {"tier", "pro"}}, 1, "all= 1/8, tiers=ada 1/20", "rated"},
		{Descriptor{{"user", "eve"}, {"tier", "pro"}}, 1, "all= 1/8, tiers=eve 1/5", ""},
		{Descriptor{{"user", "bob"}}, 1, "all= 1/8, shadow= 1/1 shadow", ""},
		{Descriptor{{"route", "GET /dear"}}, 1, "all= 1/8, free= 7/1", ""},
		{Descriptor{{"route", "POST /export"}}, 1, "exports= 1/2", ""},
	} {
		out, err := set.Decide(c.d, c.cost, nil)
		if err != nil {
			t.Fatal(err)
		}
		var checks []string
		for i := range out.Checks {
			checks = append(checks, out.Checks[i].Rule.Name())
		}
		if got := bounds(&out); got != c.want || strings.Join(checks, " ") != c.checks {
			t.Errorf("%v at cost %d: bounded by %q and checked by %q, want %q and %q", c.d, c.cost, got, checks, c.want, c.checks)
		}
		// What is inspected is what is decided.
		var inspected Outcome
		for _, b := range set.Inspect(c.d, c.cost, nil) {
			inspected.Bounds = append(inspected.Bounds, b.Bounds...)
		}
		if got := bounds(&inspected); got != c.want {
			t.Errorf("%v: inspected as bounded by %q, want %q", c.d, got, c.want)
		}
	}

	for _, c := range []struct {
		rule, key, want string
		wrong           string // in the error
	}{
		{"reports", "kim", "reports=kim 2/3", ""},
		{"tiers", "ada", "tiers=ada 1/20", ""},
		{"tiers", "kim", "", `none for a key of which that is not known`},
		{"all", "", "all= 1/8", ""},
		{"all", "kim", "", "must be empty"},
		{"rated", "", "", "does not bound what is in progress"},
		{"none", "", "", "there is no rule"},
	} {
		b, err := set.Bound(c.rule, c.key, 1)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s, %q: %v, want an error with %q", c.rule, c.key, err, c.wrong)
			}
			continue
		}
		if got := bounds(&Outcome{Bounds: []Bound{b}}); err != nil || got != c.want {
			t.Errorf("%s, %q: %q, %v, want %q", c.rule, c.key, got, err, c.want)
		}
	}
	_, err = set.Check("all", "", 1)
	if invalid, ok := errors.AsType[*headgate.InvalidError](err); !ok || !strings.Contains(invalid.Error(), "acquire a permit instead") {
		t.Errorf("a rule without limits is checked: %v", err)
	}
}

// TestBoundsOfTwoHashKeys: while the hash key is being changed, processes that know one key
// only share permits with those that know both.
func TestBoundsOfTwoHashKeys(t *testing.T) {
	old, next := []byte(strings.Repeat("o", 32)), []byte(strings.Repeat("n", 32))
	rules := []Rule{
		{Name: "here", Per: []Part{{Entry: "api_key"}}, InProgress: &InProgress{Limit: 1}},
		{Name: "shared", Per: []Part{{Entry: "api_key"}}, InProgress: &InProgress{Limit: 1, Shared: true}},
	}
	set, err := New(rules, HashKey(next), OldHashKey(old))
	if err != nil {
		t.Fatal(err)
	}
	before, err := New(rules, HashKey(old))
	if err != nil {
		t.Fatal(err)
	}
	out, err := set.Decide(Descriptor{{"api_key", "k1"}}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Bounds) != 3 || out.Bounds[0].Old || out.Bounds[1].Old || !out.Bounds[2].Old || out.Bounds[2].Key != before.Hash("api_key", "k1") {
		t.Errorf("bounded by %s", bounds(&out))
	}
}

func TestBoundMistakes(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{Name: "r", InProgress: &InProgress{}}, "in_progress.limit"},
		{Rule{Name: "r", InProgress: &InProgress{Limit: headgate.MaxCount + 1}}, "in_progress.limit"},
		{Rule{Name: "r", InProgress: &InProgress{Entry: "tier"}}, "in_progress"},
		{Rule{Name: "r", InProgress: &InProgress{Values: map[string]int64{"a": 1}}}, "in_progress"},
		{Rule{Name: "r", InProgress: &InProgress{Entry: "tier", Values: map[string]int64{"a": 0}}}, "in_progress"},
		{Rule{Name: "r", InProgress: &InProgress{Entry: "tier", Values: map[string]int64{"": 1}}}, "in_progress"},
		{Rule{Name: "r", InProgress: &InProgress{Limit: 1, Wait: -1}}, "in_progress.wait"},
		{Rule{Name: "r", InProgress: &InProgress{Limit: 1, Wait: MaxWait + 1}}, "in_progress.wait"},
		{Rule{Name: "r", InProgress: &InProgress{Limit: 1, Queue: 1}}, "in_progress.queue"},
		{Rule{Name: "r", InProgress: &InProgress{Limit: 1, Wait: 1, Queue: MaxQueue + 1}}, "in_progress.queue"},
		{Rule{Name: "r", InProgress: &InProgress{Limit: 1, TTL: time.Second}}, "in_progress.ttl"},
		{Rule{Name: "r", InProgress: &InProgress{Limit: 1, Shared: true, TTL: 1}}, "in_progress.ttl"},
		{Rule{Name: "r", InProgress: &InProgress{Limit: MaxShared + 1, Shared: true}}, "in_progress.limit"},
		{Rule{Name: "r", InProgress: &InProgress{Limit: 1, Shared: true, Wait: 1, Queue: MaxShared + 1}}, "in_progress.queue"},
		{Rule{Name: "r", Direct: true, InProgress: &InProgress{Limit: 1}}, "in_progress"},
		{Rule{Name: "", InProgress: &InProgress{Limit: 1}}, "name"},
		{Rule{Name: "r", InProgress: &InProgress{Limit: 1}, Soft: 80}, "soft"},
		{Rule{Name: "r", Limits: headgate.MustRule("r", headgate.PerHour(1)), Overrides: []Override{{Match: []Condition{Equal("a", "b")}, InProgress: 1}}}, "overrides.0.in_progress"},
		{Rule{Name: "r", InProgress: &InProgress{Limit: 1}, Overrides: []Override{{Match: []Condition{Equal("a", "b")}}}}, "overrides.0"},
	} {
		_, err := New([]Rule{c.rule})
		mistaken, ok := errors.AsType[*Error](err)
		if !ok || mistaken.Mistakes[0].Field != c.want {
			t.Errorf("%+v %+v: %v, want a mistake in %s", c.rule, c.rule.InProgress, err, c.want)
		}
	}
}
