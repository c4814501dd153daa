package config

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/lint"
	"github.com/headgate/headgate/policy/models"
)

const priced = `
money_unit: 0.0001
models:
  - { model: gpt-5-mini*, input: 0.25, cached_input: 0.025, output: 2, max_input: 400_000, max_output: 4096, image: 1600 }
  - { model: fast, is: gpt-5-mini-2025-08-07 }
  - { model: "*", input: 10, cache_write: 12.5, output: 0.000001, max_output: { tier: { free: 100, pro: 8000, "*": 50 } } }
rules:
  - name: budget
    per: [team]
    algorithm: fixed_window
    counts: money
    limits: [50_000 per calendar month]
    reservation: { reserve: typical }
`

// Prices are read exactly, and written as they are read.
func TestModels(t *testing.T) {
	t.Parallel()
	set, err := Parse("priced.yml", []byte(priced))
	if err != nil {
		t.Fatal(err)
	}
	want := []models.Model{
		{Name: "gpt-5-mini*", Priced: true, Input: 250_000, CachedInput: 25_000, Output: 2_000_000, MaxInput: 400_000, MaxOutput: 4096, Image: 1600},
		{Name: "fast", Is: "gpt-5-mini-2025-08-07"},
		{Name: "*", Priced: true, Input: 10_000_000, CacheWrite: 12_500_000, Output: 1, MaxOutput: 50, OutputTiers: &models.OutputTiers{Entry: "tier", Values: map[string]int64{"free": 100, "pro": 8000}}},
	}
	if got := set.Models().All(); !reflect.DeepEqual(got, want) || set.Models().Unit() != 100 || set.Rule("budget").Counts != models.Money {
		t.Errorf("got %+v in units of %d, want %+v", got, set.Models().Unit(), want)
	}
	for tier, most := range map[string]int64{"free": 100, "pro": 8000, "other": 50, "": 50} {
		if m := set.Model("x", policy.Descriptor{{Name: "tier", Value: tier}}); m.MaxOutput != most {
			t.Errorf("the tier %q may ask for %d", tier, m.MaxOutput)
		}
	}
	if m := set.Models().Find("fast"); m.Name != "gpt-5-mini-2025-08-07" || m.Output != 2_000_000 {
		t.Errorf("the other name leads to %+v", m)
	}
	text, err := Format(set)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again.yml", text)
	if err != nil || !reflect.DeepEqual(again.Models().All(), want) || again.Models().Unit() != 100 || again.Rule("budget").Counts != models.Money || !again.Rule("budget").Reservation.Typical {
		t.Errorf("it is written as\n%s: %v", text, err)
	}
}

// Mistakes are told with their places.
func TestModelMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{ model: m, input: 1 }":                           "a model has prices for input and for output, or none; give both",
		"{ model: m, input: 1.0000001, output: 1 }":        "input is 1.0000001, must be a number from 0 to 1000000 with at most 6 digits behind the point, such as 2.50",
		"{ model: m, input: 1, output: 1000000.1 }":        "output is 1000000.1, must be a number from 0 to 1000000",
		"{ model: m, input: -1, output: 1 }":               "input is -1, must be a number from 0",
		"{ model: m, input: 1e3, output: 1 }":              "input is the text \"1e3\", must be a number from 0",
		"{ model: m, input: true, output: 1 }":             "input is true, must be a number from 0",
		"{ model: m, max_output: { tier: { \"*\": 5 } } }": "the numbers by \"tier\" have no value but \"*\"; write 5 instead",
		"{ model: m, max_output: { tier: { pro: 0 } } }":   "the number of \"pro\" is 0, must be 1 to 1000000000",
		"{ model: m, max_output: 0 }":                      "max_output is 0, must be 1 to 1000000000",
		"{ model: m*n }":                                   "has a star that is not its last character",
		"{ model: m, is: n, input: 1, output: 1 }":         "stands for another one, so it has a whole name and nothing else",
		"{ model: m }, { model: m }":                       "is there twice; keep one",
		"{ model: m, is: n }, { model: n, is: m }":         "stands for another one; name that one",
		"{ model: m, output_price: 2 }":                    `a model has no field "output_price"`,
	} {
		_, err := Parse("p.yml", []byte("models: ["+text+"]\nrules: [{ name: r, per: all, limits: [1 per 1s] }]\n"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "p.yml:1:") {
			t.Errorf("%s: the mistake is %v, want %q", text, err, want)
		}
	}
}

// The files of the example load, lint has nothing to say of the policy, and the page shows it.
func TestModelsPage(t *testing.T) {
	t.Parallel()
	const dir = "../examples/llm/"
	text, err := os.ReadFile(dir + "policy.yml")
	if err != nil {
		t.Fatal(err)
	}
	set, err := Parse("policy.yml", text)
	if err != nil {
		t.Fatal(err)
	}
	// The server has a hash key.
	for _, w := range lint.All(set) {
		if w.Code != lint.PlainHash && w.Ignored == "" {
			t.Errorf("lint warns: %s", w.Text)
		}
	}
	if _, err := ReadGateway(dir + "gateway.yml"); err != nil {
		t.Error(err)
	}
	page, err := os.ReadFile("../docs/language-models.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")
	if len(blocks) != 4 || !strings.HasPrefix(blocks[1], string(text)+"```") {
		t.Errorf("the page does not show %spolicy.yml", dir)
	}
	gateway, _, _ := strings.Cut(blocks[2], "```") // The last one is Envoy's.
	if _, err := ParseGateway("page", []byte(gateway)); err != nil {
		t.Error(err)
	}
}
