package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy/models"
)

// modelSet has a rule for everything that can be counted, and three models.
func modelSet(t *testing.T, opts ...Option) *Set {
	t.Helper()
	var rules []Rule
	for c := models.Requests; c.Known(); c++ {
		rules = append(rules, Rule{Limits: headgate.MustRule(c.String(), headgate.PerHour(headgate.MaxCount)), Counts: c})
	}
	rules = append(rules, Rule{Limits: headgate.MustRule("doubled", headgate.PerHour(headgate.MaxCount)), Counts: models.Tokens, Cost: 2})
	set, err := New(rules, append([]Option{Models(
		models.Model{Name: "small*", Priced: true, Input: 250_000, CachedInput: 25_000, Output: 2_000_000, MaxOutput: 4096},
		models.Model{Name: "small-2", Priced: true, Input: 1_000_000, Output: 1_000_000},
		models.Model{Name: "fast", Is: "small-1"},
		models.Model{Name: "free", Priced: true},
		models.Model{Name: "unpriced", MaxOutput: 10},
	)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// costsOf is what a call costs under each rule that binds it.
func costsOf(t *testing.T, s *Set, u *models.Usage) map[string]int64 {
	t.Helper()
	found, err := s.DecideUsage(nil, 1, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	costs := make(map[string]int64)
	for i := range found.Checks {
		costs[found.Checks[i].Rule.Name()] = found.Checks[i].Cost
	}
	for _, b := range s.Inspect(nil, 1, u) {
		if got := costs[b.Rule.Name]; b.Binds() && b.Checks[0].Cost != got || !b.Binds() && got != 0 {
			t.Errorf("%s: Inspect does not agree with a cost of %d", b.Rule.Name, got)
		}
	}
	return costs
}

// Each rule takes the cost that it counts.
func TestUsageCosts(t *testing.T) {
	t.Parallel()
	s := modelSet(t)
	for _, tt := range []struct {
		what string
		u    *models.Usage
		want map[string]int64
	}{
		{"no call of a model", nil, map[string]int64{"requests": 1}},
		{"input and output", &models.Usage{Model: "small-1", Input: 1000, Output: 100}, map[string]int64{
			"requests": 1, "input_tokens": 1000, "output_tokens": 100, "tokens": 1100, "doubled": 2200, "money": 250 + 200,
		}},
		{"a cache", &models.Usage{Model: "small-1", Input: 1000, CachedInput: 400, Output: 100}, map[string]int64{
			"requests": 1, "input_tokens": 1000, "output_tokens": 100, "tokens": 1100, "doubled": 2200, "money": 150 + 10 + 200,
		}},
		{"another name for a model, one token, rounded up", &models.Usage{Model: "fast", Input: 1}, map[string]int64{
			"requests": 1, "input_tokens": 1, "tokens": 1, "doubled": 2, "money": 1,
		}},
		{"the longest name", &models.Usage{Model: "small-2", Input: 7}, map[string]int64{
			"requests": 1, "input_tokens": 7, "tokens": 7, "doubled": 14, "money": 7,
		}},
		{"a model that costs nothing", &models.Usage{Model: "free", Output: 7}, map[string]int64{
			"requests": 1, "output_tokens": 7, "tokens": 7, "doubled": 14,
		}},
	} {
		if got := costsOf(t, s, tt.u); !equalCosts(got, tt.want) {
			t.Errorf("%s: costs %v, want %v", tt.what, got, tt.want)
		}
	}
}

func equalCosts(a, b map[string]int64) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// What cannot be counted is an error, and binds nothing.
func TestUsageMistakes(t *testing.T) {
	t.Parallel()
	s := modelSet(t)
	for _, tt := range []struct {
		u    models.Usage
		want string
	}{
		{models.Usage{Model: "unpriced", Input: 1}, `the model "unpriced" has no price`},
		{models.Usage{Model: "else", Input: 1}, `the model "else" has no price`},
		{models.Usage{Model: "free", Input: -1}, "the usage has -1 tokens"},
		{models.Usage{Model: "free", Output: models.MaxTokens + 1}, "the usage has 1000000001 tokens"},
		{models.Usage{Model: "free", Input: 1, CachedInput: 2}, "the usage has 1 tokens of input, and 2 of them"},
		{models.Usage{Model: "free", Input: models.MaxTokens, Output: 1}, ""},
		{models.Usage{Model: "small-2", Input: models.MaxTokens}, ""},
	} {
		found, err := s.DecideUsage(nil, 1, &tt.u, nil)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", tt.u, err)
			}
			continue
		}
		if err == nil || !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), tt.want) || len(found.Checks) > 0 {
			t.Errorf("%+v: the error is %v with %d checks, want %q", tt.u, err, len(found.Checks), tt.want)
		}
	}
}

// A reservation is settled at what each rule counts.
func TestSettleUsage(t *testing.T) {
	t.Parallel()
	s := modelSet(t)
	found, err := s.DecideUsage(nil, 1, &models.Usage{Model: "small-1", Input: 1000, Output: 1000}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := headgate.Reservation{Checks: found.Checks} // of requests, input, output, tokens, money and doubled
	for _, tt := range []struct {
		what string
		cost int64
		u    *models.Usage
		want []int64
	}{
		{"the truth", -1, &models.Usage{Model: "small-1", Input: 900, CachedInput: 500, Output: 10}, []int64{1, 900, 10, 910, 100 + 13 + 20, 1820}},
		{"an unknown usage", -1, nil, []int64{1, 1000, 1000, 2000, 2250, 4000}},
		{"nothing", 0, new(models.Usage), []int64{0, 0, 0, 0, 2250, 0}}, // the model without a name has no price
		{"nothing, of a model", 0, &models.Usage{Model: "small-1"}, []int64{0, 0, 0, 0, 0, 0}},
		{"a model without a price", -1, &models.Usage{Model: "unpriced", Input: 1, Output: 1}, []int64{1, 1, 1, 2, 2250, 4}},
		{"an absurd usage", -1, &models.Usage{Model: "small-1", Output: -1}, []int64{1, 1000, 1000, 2000, 2250, 4000}},
	} {
		if got := s.Settle(&r, tt.cost, tt.u, 0); !slices.Equal(got, tt.want) {
			t.Errorf("%s: settled at %v, want %v", tt.what, got, tt.want)
		}
	}
	if s.Term(found.Checks) != models.Term || s.Term(found.Checks[:1]) != headgate.DefaultTerm {
		t.Error("reservations of calls of models last as long as others")
	}
}

// Only what calls use can be typical.
func TestTypicalRequests(t *testing.T) {
	t.Parallel()
	r := Rule{Limits: headgate.MustRule("r", headgate.PerHour(1)), Reservation: Reservation{Typical: true}}
	if _, err := New([]Rule{r}); err == nil || !strings.Contains(err.Error(), "it reserves what is typical, but counts requests") {
		t.Errorf("the error is %v", err)
	}
	r.Counts = models.Tokens
	mustNew(t, []Rule{r})
}

// Mistakes about models are told, all at once.
func TestModelMistakes(t *testing.T) {
	t.Parallel()
	_, err := New(nil, MoneyUnit(3), Models(
		models.Model{}, models.Model{Name: "a*b"}, models.Model{Name: "c"}, models.Model{Name: "c"}, models.Model{Name: "d*", Is: "c"},
		models.Model{Name: "e", Is: "c", Input: 1}, models.Model{Name: "f", Is: "g"}, models.Model{Name: "g", Is: "c"}, models.Model{Name: "h", Output: models.MaxPrice + 1, Image: -1},
		models.Model{Name: "i", OutputTiers: &models.OutputTiers{Entry: "tier?"}}, models.Model{Name: "j", OutputTiers: &models.OutputTiers{Entry: "tier", Values: map[string]int64{"": 1}}},
	))
	var found *Error
	if !errors.As(err, &found) || len(found.Mistakes) != 12 {
		t.Fatalf("the mistakes are %v, want 12", err)
	}
}

// What binds a call ahead of its body binds it whatever model the body names, and nothing else is
// said ahead.
func TestAhead(t *testing.T) {
	t.Parallel()
	limits := func(name string) *headgate.Rule { return headgate.MustRule(name, headgate.PerHour(10)) }
	rules := []Rule{
		{Limits: limits("all")},
		{Limits: limits("user"), Per: []Part{{Entry: "user"}}},
		{Limits: limits("model"), Per: []Part{{Entry: "model"}}},
		{Limits: limits("other-models"), Match: []Condition{Not(Equal("model", "m"))}},
		{Name: "tier", Tariff: &Tariff{Entry: "model", Other: limits("tier")}},
		{Limits: limits("tokens"), Counts: models.Tokens},
		{Limits: limits("replaced")},
		{Limits: limits("large"), Match: []Condition{Equal("model", "m")}, Replaces: []string{"replaced"}},
		{Limits: limits("busy"), InProgress: &InProgress{Limit: 1}},
	}
	list := func(conditions ...Condition) ListEntry { return ListEntry{Name: "list", Match: conditions} }
	ada, model, noModel := Equal("user", "ada"), Equal("model", "m"), Absent("model")
	const some = "all user busy"
	for _, tt := range []struct {
		what   string
		opts   []Option
		denied bool
		want   string
	}{
		{"no lists", nil, false, some},
		{"a client is denied", []Option{Denied(list(ada))}, true, ""},
		{"a model is denied", []Option{Denied(list(model))}, false, some},
		{"a client's model is denied", []Option{Denied(list(ada, model))}, false, some},
		{"other models are denied", []Option{Denied(list(Not(model)))}, false, ""},
		{"what has no model is denied", []Option{Denied(list(noModel))}, false, ""},
		{"a client is allowed", []Option{Allowed(list(ada))}, false, ""},
		{"a model is allowed", []Option{Allowed(list(model))}, false, ""},
		{"what has no model is allowed", []Option{Allowed(list(noModel))}, false, ""},
		{"the table is by model", []Option{SubjectTable(Subjects{By: "model", Table: []Subject{{Key: "m", Entries: []Entry{{"user", "bob"}}}}})}, false, ""},
	} {
		s, err := New(rules, tt.opts...)
		if err != nil {
			t.Fatal(err)
		}
		d := Descriptor{{"user", "ada"}}
		out := s.Ahead(d, make([]headgate.Check, 1))
		var names []string
		for i := range out.Checks[1:] {
			names = append(names, out.Checks[i+1].Rule.Name())
		}
		if got := strings.Join(names, " "); got != tt.want || (out.Denied != nil) != tt.denied || out.Bounds != nil {
			t.Errorf("%s: %q binds ahead, denied %v, want %q, %v", tt.what, got, out.Denied != nil, tt.want, tt.denied)
		}
		for _, name := range []string{"m", "n"} {
			whole, err := s.DecideUsage(append(slices.Clone(d), Entry{"model", name}), 1, &models.Usage{Model: name, Input: 1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, check := range out.Checks[1:] {
				if whole.Denied == nil && !slices.Contains(whole.Checks, check) {
					t.Errorf("%s: %s binds ahead, and not the call of %s", tt.what, check.Rule.Name(), name)
				}
			}
			if out.Denied != nil && whole.Denied == nil {
				t.Errorf("%s: denied ahead, and not the call of %s", tt.what, name)
			}
		}
	}
	if out := mustNew(t, []Rule{{Limits: limits("by-size"), Costs: &Costs{Entry: "size", Per: 1}}}).Ahead(Descriptor{{"size", "x"}}, nil); len(out.Checks) > 0 {
		t.Errorf("a call that cannot be measured is bound by %v", out.Checks)
	}
}
