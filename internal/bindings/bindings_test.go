package bindings_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bindings"
	"github.com/headgate/headgate/policy"
)

// An adapter whose requests are lines of "name=value", with nothing to find them by.
type (
	fact    = bindings.Fact[struct{}, string]
	key     = bindings.Key[struct{}, string]
	binding = bindings.Binding[struct{}, string]
	options = bindings.Options[struct{}, string]
)

func entry(name string) *fact {
	return &fact{Name: name, Find: func(_ struct{}, line string) string {
		_, value, _ := strings.Cut(line, name+"=")
		return value
	}}
}

func by(facts ...*fact) key { return key{Facts: facts, Made: true} }

func names(facts []*fact) (all []string) {
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
	own := entry("user")
	c := bindings.New(options{
		Set: set, Facts: []*fact{own}, Known: []*fact{ip, user, other}, Address: ip, IPv6Bits: 48,
		HashKey: []byte(strings.Repeat("k", policy.MinHashKey)), Bad: t.Errorf,
	})
	c.Need(other)
	limits := c.Compile("Limit", []binding{
		{Key: bindings.Combine(by(ip), by(own)), Rules: []*headgate.Rule{headgate.MustRule("both", headgate.PerSecond(2))}},
		{Key: by(), Rules: []*headgate.Rule{headgate.MustRule("all", headgate.PerSecond(3))}},
	})
	checks, err := limits.Match(policy.Descriptor{{Name: "ip", Value: "2001:db8:1:2::3"}, {Name: "user", Value: "anna"}}, 1, nil)
	if err != nil || len(checks) != 2 || checks[0].Key != "2001:db8:1::/48|anna" || checks[1].Key != "" {
		t.Errorf("%v, %v", checks, err)
	}
	facts := c.Facts()
	if got := names(facts); !slices.Equal(got, []string{"user", "ip", "other"}) || facts[0] != own {
		t.Errorf("chosen are %v", got)
	}
	k := by(ip, own)
	if lacks := k.Lacks(policy.Descriptor{{Name: "ip", Value: "::1"}}); lacks != "user" {
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
	var told []string
	c := bindings.New(options{
		Set: set, Known: []*fact{entry("ip")}, HashKey: []byte("short"),
		Bad: func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) },
	})
	for _, option := range []string{"Limit", "MessageLimit"} {
		c.Compile(option, []binding{{}, {Key: by(entry("user")), Rules: []*headgate.Rule{nil, rule}}, {Key: by(&fact{Name: "user"}), Rules: []*headgate.Rule{headgate.MustRule(option, headgate.PerSecond(1))}}})
	}
	c.Facts()
	all := strings.Join(told, "\n")
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
	} {
		if n := strings.Count(all, text); n != times {
			t.Errorf("%q is told %d times, want %d:\n%s", text, n, times, all)
		}
	}
}
