package lint

import (
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
)

func TestLintMisspelt(t *testing.T) {
	tenants := func(n int, more ...policy.Rule) []policy.Rule {
		for i := range n {
			more = append(more, ruleOf(string(rune('a'+i)), nil, "tenant"))
		}
		return more
	}
	tiers := policy.Subjects{Table: []policy.Subject{{Key: "k", Entries: []policy.Entry{{Name: "country", Value: "de"}}}}}
	for _, c := range []struct {
		name  string
		rules []policy.Rule
		opts  []policy.Option
		want  [][3]string // the rule, the entry, and what was meant
	}{
		{"known and unknown ones", []policy.Rule{ruleOf("r", []policy.Condition{policy.Present("user")}, "ip", "client", "tier")}, nil, nil},
		{"in match and per, beside a rule for all", []policy.Rule{ruleOf("r", []policy.Condition{policy.Present("apikey")}, "apikey"), ruleOf("all", nil)}, nil, [][3]string{{"r", "apikey", "api_key"}}},
		{"in two rules", []policy.Rule{ruleOf("r", nil, "usre"), ruleOf("s", []policy.Condition{policy.Absent("usre")})}, nil, [][3]string{{"r", "usre", "user"}, {"s", "usre", "user"}}},
		{"one of several", tenants(2, ruleOf("r", nil, "tennant")), nil, [][3]string{{"r", "tennant", "tenant"}}},
		{"one of two", tenants(1, ruleOf("r", nil, "tennant")), nil, nil},
		{"two of four", tenants(2, ruleOf("r", []policy.Condition{policy.Present("tennant")}, "tennant")), nil, nil},
		{"declared", tenants(2, ruleOf("r", nil, "apikey")), []policy.Option{policy.Entries("tenant", "apikey")}, nil},
		{"a column of the table", []policy.Rule{ruleOf("r", nil, "countri")}, []policy.Option{policy.SubjectTable(tiers)}, nil},
		{"nearly a column of the table", []policy.Rule{ruleOf("r", nil, "conutry")}, []policy.Option{policy.SubjectTable(tiers)}, [][3]string{{"r", "conutry", "country"}}},
		{"in a list", nil, []policy.Option{policy.Denied(policy.ListEntry{Name: "x", Match: []policy.Condition{policy.Equal("IP", "192.0.2.1")}})}, [][3]string{{"", "IP", "ip"}}},
		{"what clients are looked up by", nil, []policy.Option{policy.SubjectTable(policy.Subjects{By: "apikey", Table: tiers.Table})}, [][3]string{{"", "apikey", "api_key"}}},
	} {
		var got [][3]string
		for _, w := range Warnings(mustNew(t, c.rules, c.opts...)) {
			if w.Code != Misspelt {
				continue
			}
			words := strings.Split(w.Text, `"`)
			got = append(got, [3]string{w.Rule, words[1], words[3]})
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
