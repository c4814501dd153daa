package insight_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/telemetry/insight"
)

// TestSpending: what calls spend is added up by key and model under each rule that counts it, and by
// model once; two recorders are merged; and of too many spenders those that spend least are forgotten.
func TestSpending(t *testing.T) {
	var rules []policy.Rule
	for _, c := range []models.Counted{models.Requests, models.Tokens, models.Money} {
		rules = append(rules, policy.Rule{Limits: headgate.MustRule(c.String(), headgate.PerMinute(1000)), Counts: c})
	}
	set, err := policy.New(rules, policy.Models(models.Model{Name: "m*", Priced: true, Input: 1_000_000, Output: 2_000_000}))
	if err != nil {
		t.Fatal(err)
	}
	spent := func(r *insight.Recorder, key, model string, input int64, known bool) {
		var made headgate.Reservation
		for i := range rules {
			made.Checks = append(made.Checks, headgate.Check{Rule: rules[i].Limits, Key: key})
		}
		r.Spent(set.Spending(models.Usage{Model: model, Input: input, Output: 1}, known, &made, []int64{1, input + 1, input + 2}))
	}
	one, two := insight.New(insight.Options{}), insight.New(insight.Options{})
	defer one.Close()
	defer two.Close()
	spent(one, "anna", "m1", 10, true)
	spent(one, "anna", "m2", 20, true)
	spent(one, "anna", "m2", 500, false)
	spent(one, "bert", "anything", 7, true)
	spent(two, "anna", "m1", 100, true)
	got := one.Spending(100)
	got.Merge(two.Spending(100), 100)
	anna := insight.Spent{Calls: 4, Estimated: 1, InputTokens: 130, OutputTokens: 3, Micros: 136}
	want := map[string]string{
		"  m*":              fmt.Sprint(anna, 0),
		"  other":           fmt.Sprint(insight.Spent{Calls: 1, InputTokens: 7, OutputTokens: 1}, 0),
		"tokens anna m*":    fmt.Sprint(anna, 634),
		"money anna m*":     fmt.Sprint(anna, 638),
		"tokens bert other": fmt.Sprint(insight.Spent{Calls: 1, InputTokens: 7, OutputTokens: 1}, 8),
		"money bert other":  fmt.Sprint(insight.Spent{Calls: 1, InputTokens: 7, OutputTokens: 1}, 9),
	}
	for _, s := range append(got.Models, got.Spenders...) {
		id := s.Rule + " " + s.Key.Raw + " " + s.Model
		if text := fmt.Sprint(s.Spent, s.Charged); want[id] != text {
			t.Errorf("%q has %s, want %s", id, text, want[id])
		}
		delete(want, id)
	}
	if len(want) > 0 || got.Spenders[0].Key.Raw != "anna" || got.Spenders[0].Counts != got.Spenders[0].Rule {
		t.Errorf("missing %v, in %+v", want, got.Spenders)
	}
	for i := range int64(5000) {
		spent(two, fmt.Sprint("key ", i), "m1", i, true)
	}
	after := two.Spending(10_000)
	if n := int64(len(after.Spenders)); n > 2000 || n+after.Dropped != 2*5001 {
		t.Errorf("%d spenders are known and %d dropped, of %d", n, after.Dropped, 2*5001)
	}
	if k := after.Spenders[0].Key.Raw; k != "key 4999" || after.Models[0].Calls != 5001 {
		t.Errorf("most was spent by %q, models %+v", k, after.Models)
	}
}
