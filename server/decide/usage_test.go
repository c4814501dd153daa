package decide_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// Random histories of calls that are reserved and settled leave what an oracle says: it adds up for
// each rule what the calls that are not denied have cost, and denies what does not fit under one.
func TestUsageAgainstOracle(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	names := []string{"requests", "input_tokens", "output_tokens", "tokens", "money"}
	counted := []models.Counted{models.Requests, models.InputTokens, models.OutputTokens, models.Tokens, models.Money}
	var rules []policy.Rule
	limits := []int64{300, limit, limit, limit + limit/2, limit}
	for i, name := range names {
		// Windows of a year, so that nothing comes back by itself.
		l := headgate.Limit{Algorithm: headgate.FixedWindow, Count: limits[i], Align: headgate.AlignYear}
		rules = append(rules, policy.Rule{Limits: headgate.MustRule(name, l), Counts: counted[i]})
	}
	set, err := policy.New(rules, policy.Models(models.Model{Name: "m", Priced: true, Input: 500_000, Output: 1_500_000}))
	if err != nil {
		t.Fatal(err)
	}
	costs := func(u models.Usage) [5]int64 {
		return [5]int64{1, u.Input, u.Output, u.Input + u.Output, (u.Input + 3*u.Output + 1) / 2}
	}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 34)) //nolint:gosec // for a test
		d := &decide.Over{Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} }, Store: memory.New(memory.Clock(func() int64 { return 1_763_712_000_000_000 }))}
		type reserved struct {
			id    string
			units [5]int64
		}
		var open []reserved
		var used, charged [5]int64
		d.Spending = func(_ context.Context, s *models.Spending) {
			charged[0]++
			for _, c := range s.Charges {
				charged[c.Counts] += c.Units
			}
		}
		denied := 0
		for range 400 {
			if len(open) > 0 && random.IntN(2) == 0 {
				i := random.IntN(len(open))
				r := open[i]
				open = append(open[:i], open[i+1:]...)
				u := models.Usage{Model: "m", Input: random.Int64N(900), Output: random.Int64N(900)}
				s := decide.Settlement{Reservation: r.id, Usage: u, Given: decide.GivenUsage}
				units := costs(u)
				switch random.IntN(4) {
				case 0: // the provider has refused
					s.Given, s.Usage, units = decide.GivenCost|decide.GivenUsage, models.Usage{Model: "m"}, [5]int64{}
				case 1: // nobody knows
					s.Given, s.Status, units = decide.GivenStatus, 200, r.units
				}
				var request decide.Request
				if o := request.Settle(t.Context(), d, s); o.Kind != decide.Decided {
					t.Fatalf("seed %d: %s", seed, o.Text())
				}
				for j := range used {
					used[j] += units[j] - r.units[j]
				}
				continue
			}
			u := models.Usage{Model: "m", Input: 1 + random.Int64N(900), Output: 1 + random.Int64N(900)}
			units := costs(u)
			fits := true
			for j := range used {
				fits = fits && used[j]+units[j] <= limits[j]
			}
			request := decide.Request{Ask: decide.Ask{Reserve: true, Usage: &u}, Given: decide.GivenDescriptor | decide.GivenUsage}
			o := request.Decide(t.Context(), d)
			if o.Kind != decide.Decided || o.Verdict.Allowed != fits {
				t.Fatalf("seed %d: %v with %v used: allowed %v, want %v: %s", seed, units, used, o.Verdict.Allowed, fits, o.Text())
			}
			if !fits {
				denied++
				continue
			}
			open = append(open, reserved{request.Reservation.ID, units})
			for j := range used {
				used[j] += units[j]
			}
		}
		for _, r := range open {
			for j := range used {
				charged[j] += r.units[j]
			}
		}
		for j, name := range names {
			if j > 0 && charged[j] != used[j] {
				t.Errorf("seed %d: %s: observers are told of %d, want %d", seed, name, charged[j], used[j])
			}
			c, err := set.Check(name, "", 1)
			if err != nil {
				t.Fatal(err)
			}
			decisions, err := d.Store.Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := limits[j] - decisions[0].Remaining; got != min(used[j], limits[j]) {
				t.Errorf("seed %d: %s: %d used, want %d", seed, name, got, used[j])
			}
		}
		if denied == 0 {
			t.Errorf("seed %d: nothing was denied", seed)
		}
	}
}

// Observers are told of no work but calls to language models.
func TestOtherWorkIsNotSpent(t *testing.T) {
	t.Parallel()
	set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("work", headgate.PerHour(10))}})
	if err != nil {
		t.Fatal(err)
	}
	d := &decide.Over{Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} }, Store: memory.New()}
	told := 0
	d.Spending = func(context.Context, *models.Spending) { told++ }
	for i, given := range []decide.Given{decide.GivenCost, decide.GivenUsage} {
		reserved := decide.Request{Ask: decide.Ask{Reserve: true}, Given: decide.GivenDescriptor}
		reserved.Decide(t.Context(), d)
		var request decide.Request
		o := request.Settle(t.Context(), d, decide.Settlement{Reservation: reserved.Reservation.ID, Given: given})
		if o.Kind != decide.Decided || told != i {
			t.Errorf("observers are told of %d, want %d: %s", told, i, o.Text())
		}
	}
}
