package insightapi_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/telemetry/insight"
)

// TestBudgets: budgets are limits on tokens and money of calendar periods, of those who spend. At the pace
// of a third of a month, three quarters of a budget do not last, and a quarter does.
func TestBudgets(t *testing.T) {
	t.Parallel()
	month := func(count int64) headgate.Limit {
		return headgate.Limit{Algorithm: headgate.FixedWindow, Count: count, Align: headgate.AlignMonth}
	}
	team := []policy.Part{{Entry: "team"}}
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("money", month(1000)), Per: team, Counts: models.Money},
		{Limits: headgate.MustRule("tokens", headgate.PerMinute(1000), month(5000)), Counts: models.Tokens},
		{Limits: headgate.MustRule("rate", headgate.PerMinute(1000)), Per: team, Counts: models.Tokens},
		{Limits: headgate.MustRule("calls", month(1000)), Per: team},
	}, policy.Models(models.Model{Name: "*", Priced: true, Input: 1_000_000}))
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	now := begin.AddDate(0, 0, 10)
	store := memory.New(memory.Clock(func() int64 { return now.UnixMicro() }))
	recorder := insight.New(insight.Options{})
	t.Cleanup(recorder.Close)
	rules := func() decide.Policy { return decide.Policy{Set: set, Version: 1} }
	d := &decide.Over{Rules: rules, Store: store, Spending: func(_ context.Context, s *models.Spending) { recorder.Spent(s) }}
	for key, units := range map[string]int64{"fast": 750, "slow": 250} {
		u := models.Usage{Model: "m", Input: units}
		request := decide.Request{Ask: decide.Ask{Reserve: true, Usage: &u, Descriptor: policy.Descriptor{{Name: "team", Value: key}}}, Given: decide.GivenDescriptor | decide.GivenUsage}
		if o := request.Decide(t.Context(), d); !o.Verdict.Allowed {
			t.Fatal(o.Text())
		}
		request.Settle(t.Context(), d, decide.Settlement{Reservation: request.Reservation.ID, Usage: u, Given: decide.GivenUsage})
	}
	h := insightapi.New(insightapi.Options{Recorder: recorder, Policy: rules, Take: func(ctx context.Context, op headgate.Op, checks []headgate.Check) ([]headgate.Decision, error) {
		return store.Take(ctx, op, checks, nil)
	}})
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", insightapi.Prefix+"spent?limit=3", strings.NewReader("")))
	var got insightapi.SpendingReport
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	if !got.Counts || got.MoneyUnit != 1 || len(got.Spenders) != 3 || got.Spenders[0].Charged != 1000 || got.Spenders[1].Micros != 750 || len(got.Models) != 1 || got.Models[0].Calls != 2 || got.Models[0].Micros != 1000 {
		t.Errorf("spent: %+v", got)
	}
	ends := begin.AddDate(0, 1, 0).UnixMilli()
	want := []insightapi.Budget{
		{Rule: "money", Counts: "money", Key: insight.Name{Raw: "fast"}, Limit: "1000 per calendar month", Capacity: 1000, Remaining: 250, Ends: ends, SpentAt: now.Add(80 * time.Hour).UnixMilli()},
		{Rule: "money", Counts: "money", Key: insight.Name{Raw: "slow"}, Limit: "1000 per calendar month", Capacity: 1000, Remaining: 750, Ends: ends},
		{Rule: "tokens", Counts: "tokens", Limit: "5000 per calendar month", Capacity: 5000, Remaining: 4000, Ends: ends},
	}
	if len(got.Budgets) != len(want) {
		t.Fatalf("budgets %+v", got.Budgets)
	}
	for i := range want {
		if got.Budgets[i] != want[i] {
			t.Errorf("budget %d is %+v, want %+v", i, got.Budgets[i], want[i])
		}
	}
}
