package lint

import (
	"slices"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
)

// Money without a price is told, and rules that count different things are not compared.
func TestUnpriced(t *testing.T) {
	t.Parallel()
	rules := func(match ...policy.Condition) []policy.Rule {
		return []policy.Rule{
			{Limits: headgate.MustRule("requests", headgate.PerHour(1))},
			{Limits: headgate.MustRule("money", headgate.PerHour(1)), Counts: models.Money, Match: match},
		}
	}
	priced := models.Model{Name: "a*", Priced: true}
	for _, tt := range []struct {
		what   string
		rules  []policy.Rule
		models []models.Model
		want   string
	}{
		{"no prices", rules(), nil, "it counts money, and the policy has no prices, so every call to a language model is refused; give models prices"},
		{"a model without one", rules(), []models.Model{priced, {Name: "b"}}, `it counts money, and the model "b" has no price, so its calls are refused; give it one`},
		{"a model that the rule names", rules(policy.Equal("model", "a1", "c")), []models.Model{priced}, `it counts money, and the model "c" has no price, so its calls are refused; give it one`},
		{"another model", rules(policy.Equal("model", "a1")), []models.Model{priced, {Name: "b"}}, ""},
		{"another name", rules(), []models.Model{priced, {Name: "b", Is: "a1"}}, ""},
	} {
		set, err := policy.New(tt.rules, policy.Models(tt.models...))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range All(set) {
			if w.Code == Unpriced || w.Code == Shadowed || w.Code == Twice {
				got = append(got, w.Text)
			}
		}
		var want []string
		if tt.want != "" {
			want = []string{tt.want}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: warned of %q, want %q", tt.what, got, want)
		}
	}
}
