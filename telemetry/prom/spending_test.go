package prom_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/telemetry/prom"
)

// TestSpending: tokens and money are counted by what the provider has said, and what is charged apart
// from it; models that clients make up are one, and rules that have gone leave no series.
func TestSpending(t *testing.T) {
	var rules []policy.Rule
	for _, c := range []models.Counted{models.Requests, models.Tokens, models.Money} {
		rules = append(rules, policy.Rule{Limits: headgate.MustRule(c.String(), headgate.PerMinute(1000)), Counts: c})
	}
	known := []models.Model{{Name: "m*", Priced: true, Input: 1_000_000, Output: 2_000_000}, {Name: "alias", Is: "m1"}, {Name: "free"}}
	for i := range 300 {
		known = append(known, models.Model{Name: fmt.Sprint("x", i), Priced: true})
	}
	set, err := policy.New(rules, policy.Models(known...), policy.MoneyUnit(1000))
	if err != nil {
		t.Fatal(err)
	}
	p := prom.NewSpending()
	var r headgate.Reservation
	for _, rule := range rules {
		r.Checks = append(r.Checks, headgate.Check{Rule: rule.Limits, Key: "key-of-anna", Cost: 5})
	}
	spent := func(model string, known bool, first time.Duration) {
		s := set.Spending(models.Usage{Model: model, Input: 20, Output: 3}, known, &r, []int64{1, 23, 4})
		s.FirstChunk = first
		p.Spent(t.Context(), s)
	}
	spent("m1", true, 30*time.Millisecond)
	spent("alias", false, 0)
	spent("free", true, 0)
	spent("unheard of", true, 0)
	if n := testutil.CollectAndCount(p, "gen_ai_client_operation_time_to_first_chunk_seconds"); n != 1 {
		t.Errorf("%d histograms of first chunks, want 1", n)
	}
	const want = `
# HELP headgate_llm_charged_total What ended calls to language models were charged under a rule, in tokens, or in the currency if it counts money. By: usage (as the provider has stated it), estimate (it has not, so what was reserved or seen stays charged).
# TYPE headgate_llm_charged_total counter
headgate_llm_charged_total{by="estimate",counts="money",rule="money"} 0.004
headgate_llm_charged_total{by="estimate",counts="tokens",rule="tokens"} 23
headgate_llm_charged_total{by="usage",counts="money",rule="money"} 0.012
headgate_llm_charged_total{by="usage",counts="tokens",rule="tokens"} 69
# HELP headgate_llm_money_total What the tokens that providers have stated cost by the policy's prices, in its currency. Models without a price are left out.
# TYPE headgate_llm_money_total counter
headgate_llm_money_total{model="m*"} 2.6e-05
`
	if err := testutil.CollectAndCompare(p, strings.NewReader(want), "headgate_llm_charged_total", "headgate_llm_money_total"); err != nil {
		t.Error(err)
	}
	for i := range 300 {
		p.Spent(t.Context(), set.Spending(models.Usage{Model: fmt.Sprint("x", i)}, true, new(headgate.Reservation), nil))
	}
	if n := testutil.CollectAndCount(p, "gen_ai_client_token_usage"); n != 2*200 {
		t.Errorf("%d histograms of tokens, want 400", n)
	}
	p.Keep(func(rule string) bool { return rule == "money" })
	if n := testutil.CollectAndCount(p, "headgate_llm_charged_total"); n != 2 {
		t.Errorf("%d series of charges after a rule has gone, want 2", n)
	}
	problems, err := testutil.CollectAndLint(p)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
