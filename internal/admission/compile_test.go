package admission

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// The tests' adapter has requests that are lines of "name=value".
func entry(name string) *Fact[string] {
	return &Fact[string]{Name: name, Find: func(line string) string {
		_, rest, _ := strings.Cut(" "+line, " "+name+"=")
		value, _, _ := strings.Cut(rest, " ")
		return value
	}}
}

func names(facts []Fact[string]) (all []string) {
	for _, f := range facts {
		all = append(all, f.Name)
	}
	return all
}

func TestCompile(t *testing.T) {
	ip, user, other := entry("ip"), entry("user"), entry("other")
	set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("api", headgate.PerSecond(1)), Per: []policy.Part{{Entry: "user"}}}})
	if err != nil {
		t.Fatal(err)
	}
	own := &Fact[string]{Name: "user", Find: func(string) string { return "my own" }}
	late := &Fact[string]{Name: "late"} // found by options
	o := &Options[string]{
		Source: policy.NewSource(set), Facts: []*Fact[string]{own}, Known: []*Fact[string]{ip, user, other, late}, Address: other, IPv6Bits: 48,
		HashKey: []byte(strings.Repeat("k", policy.MinHashKey)), Missing: CountMissingByIP,
		Finders: map[*Fact[string]]Fact[string]{late: *entry("late")},
	}
	c := newCompiler(o)
	o.Address = ip
	limits := c.compile("Limit", []Binding[string]{
		{Key: Combine(By(ip), By(own)), Rules: []*headgate.Rule{headgate.MustRule("both", headgate.PerSecond(2))}},
		{Key: By[string](), Rules: []*headgate.Rule{headgate.MustRule("all", headgate.PerSecond(3))}},
		{Key: By(late), Rules: []*headgate.Rule{headgate.MustRule("late", headgate.PerSecond(3))}},
	})
	checks, err := limits.Match(policy.Descriptor{{Name: "ip", Value: "2001:db8:1:2::3"}, {Name: "user", Value: "anna"}}, 1, nil)
	if err != nil || len(checks) != 2 || checks[0].Key != "2001:db8:1::/48|anna" || checks[1].Key != "" {
		t.Errorf("%v, %v", checks, err)
	}
	c.findFacts()
	facts := c.inForce(set).facts
	if got := names(facts); !slices.Equal(got, []string{"user", "ip", "late", "other"}) || facts[0].Find("user=me") != "my own" || facts[2].Find("late=7") != "7" {
		t.Errorf("chosen are %v", got)
	}
	if len(o.Problems) > 0 {
		t.Errorf("mistakes: %v", o.Problems)
	}
	k := By(ip, own)
	if lacks := k.lacks(policy.Descriptor{{Name: "ip", Value: "::1"}}); lacks != "user" {
		t.Errorf("lacks %q", lacks)
	}
}

// TestMistakes: all of them are told, those of the hash keys once.
func TestMistakes(t *testing.T) {
	rule := headgate.MustRule("api", headgate.PerSecond(1))
	set, err := policy.New([]policy.Rule{{Limits: rule, Per: []policy.Part{{Entry: "tenant"}}}})
	if err != nil {
		t.Fatal(err)
	}
	o := &Options[string]{Source: policy.NewSource(set), Known: []*Fact[string]{entry("ip")}, HashKey: []byte("short"), Missing: 9, Failure: 9, MaxDelay: -1}
	var groups []Group[string]
	for _, option := range []string{"Limit", "MessageLimit"} {
		groups = append(groups, Group[string]{Option: option, Bindings: []Binding[string]{
			{},
			{Key: By(entry("user")), Rules: []*headgate.Rule{nil, rule}},
			{Key: By(&Fact[string]{Name: "user"}), Rules: []*headgate.Rule{headgate.MustRule(option, headgate.PerSecond(1))}},
		}})
	}
	New(o, groups...)
	all := strings.Join(o.Problems.Texts(), "\n")
	for text, times := range map[string]int{
		"Limit 1 has an empty Key":                     2, // and MessageLimit
		"Limit 1 has no rule":                          2,
		"Limit 2 has a nil rule":                       2,
		`Limit 2: the rule "api" is there already`:     2,
		`the entry "user" needs a function`:            2,
		`the entry "user" is found in two ways`:        3,
		"hash key":                                     1,
		"need the entries tenant, which nothing finds": 1,
		"(there are ip, user); add a Fact for each":    1,
		"IPv6Prefix is 0":                              1,
		"OnMissing: choice 9":                          1,
		"OnStoreError: choice 9":                       1,
		"MaxDelay is -1ns":                             1,
	} {
		if n := strings.Count(all, text); n != times {
			t.Errorf("%q is told %d times, want %d:\n%s", text, n, times, all)
		}
	}
}
