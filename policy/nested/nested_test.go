package nested_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/nested"
)

func limit(count int64) *nested.Limit { return &nested.Limit{Count: count, Period: time.Minute} }

func d(entries ...string) policy.Descriptor {
	var made policy.Descriptor
	for _, e := range entries {
		name, value, _ := strings.Cut(e, "=")
		made = append(made, policy.Entry{Name: name, Value: value})
	}
	return made
}

func mustNew(t testing.TB, nodes []nested.Node, opts ...policy.Option) (*nested.Tree, *policy.Set) {
	t.Helper()
	tree, set, err := nested.New([]nested.Domain{{Name: "d", Nodes: nodes}}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return tree, set
}

func TestFind(t *testing.T) {
	long := strings.Repeat("long", 300)
	tree, set := mustNew(t, []nested.Node{
		{Key: "a", Value: "one", Limit: limit(1), Nodes: []nested.Node{
			{Key: "b", Limit: limit(2)},
			{Key: "b", Value: "x*", Share: true, Limit: limit(3)},
			{Key: "b", Value: "xy*", Limit: limit(4)}, // never reached
		}},
		{Key: "a", Nodes: []nested.Node{{Key: "b", Limit: limit(5), Nodes: []nested.Node{{Key: "c", Limit: limit(6)}}}}},
		{Key: "api_key", Limit: limit(7)},
		{Key: "h-*", Limit: limit(8)},
		{Key: "h-s*", Share: true, Limit: limit(9)}, // never reached
		{Key: "user", Nodes: []nested.Node{{Key: "user", Limit: limit(10)}}},
	})
	for _, tt := range []struct {
		d         policy.Descriptor
		rule, key string
	}{
		{d("a=one"), "d.a_one", ""},
		{d("a=two"), "", ""},
		{d("a=one", "b=1"), "d.a_one.b", "1"},
		{d("a=one", "b="), "d.a_one.b", ""},
		{d("a=one", "b=x"), "d.a_one.b_x*", ""},
		{d("a=one", "b=xyz"), "d.a_one.b_x*", ""},
		{d("a=two", "b=1"), "d.a.b", "two|1"},
		{d("a=t|w\\o", "b=|"), "d.a.b", `t\|w\\o|\|`},
		{d("a=", "b="), "d.a.b", "|"},
		{d("a=one", "b=1", "c=1"), "", ""},
		{d("a=two", "b=1", "c=2"), "d.a.b.c", "two|1|2"},
		{d("a=two", "b=1", "c=2", "d=3"), "", ""},
		{d("b=1"), "", ""},
		{d(), "", ""},
		{d("api_key=secret"), "d.api_key", set.Hash("api_key", "secret")},
		{d("h-host=x"), "d.h-*", "h-host=x"},
		{d("h-same=x"), "d.h-*", "h-same=x"},
		{d("user=a", "user=b"), "d.user.user", "a|b"},
	} {
		leaf, key := tree.Find("d", tt.d)
		rule := ""
		if leaf != nil {
			rule = leaf.Rule.Name()
		}
		if rule != tt.rule || key != tt.key {
			t.Errorf("%v: found %q under %q, want %q under %q", tt.d, rule, key, tt.rule, tt.key)
		}
		if set.Rule(rule) == nil && rule != "" {
			t.Errorf("the set has no rule %q", rule)
		}
	}
	if leaf, _ := tree.Find("e", d("a=one")); leaf != nil || tree.Has("e") || !tree.Has("d") {
		t.Error("a domain that is not there")
	}
	_, one := tree.Find("d", d("h-1="+long))
	_, two := tree.Find("d", d("h-1="+long+"2"))
	if len(one) > headgate.MaxKey || one == two || one[0] != 0 {
		t.Errorf("long keys: %q and %q", one, two)
	}
}

func TestNames(t *testing.T) {
	_, set := mustNew(t, []nested.Node{
		{Key: "path", Value: "GET /a b", Limit: limit(1)},
		{Key: "path", Value: "GET_/a_b", Limit: limit(1)},
		{Key: "path", Value: strings.Repeat("é", 100), Limit: limit(1)},
		{Key: "path", Value: strings.Repeat("é", 101), Limit: limit(1)},
		{Key: "a.b", Limit: limit(1)},
		{Key: "a", Nodes: []nested.Node{{Key: "b", Limit: limit(1)}, {Key: "b_c", Limit: limit(1)}, {Key: "b", Value: "c", Limit: limit(1)}}},
		{Key: "token", Value: "hunter2", Limit: limit(1)},
		{Key: "token", Value: "hunter*", Limit: limit(1)},
		{Key: "token", Value: "*", Limit: limit(1)},
	}, policy.WithHashKey([]byte(strings.Repeat("k", 16))))
	names := make(map[string]bool)
	for _, r := range set.Rules() {
		names[r.Name] = true
		if strings.Contains(r.Name, "hunter") {
			t.Errorf("a secret in the name %q", r.Name)
		}
		if !r.Direct || len(r.Name) > headgate.MaxName {
			t.Errorf("the rule %v", r)
		}
	}
	for _, want := range []string{"d.path_GET_/a_b", "d.a.b", "d.a.b_c", "d.token_#" + set.Hash("token", "hunter2"), "d.token_*"} {
		if !names[want] {
			t.Errorf("there is no rule %q in %v", want, names)
		}
	}
	if len(names) != 11 {
		t.Errorf("there are %d names for 11 limits", len(names))
	}
}

func TestMistakes(t *testing.T) {
	at := func(line int) policy.Position { return policy.Position{File: "f", Line: line, Column: 1} }
	_, _, err := nested.New([]nested.Domain{
		{Name: "d", Pos: at(1), Nodes: []nested.Node{
			{Key: "a", Value: "x", Pos: at(2)},
			{Key: "a", Value: "x", Pos: at(3)},
			{Key: "token", Value: "x", Pos: at(4), Nodes: []nested.Node{{Key: "a", Pos: at(5)}, {Key: "a", Pos: at(6)}}},
			{Key: "token", Value: "x", Pos: at(7)},
			{Key: "b", Pos: at(8), Limit: &nested.Limit{Count: 1}},
		}},
		{Name: "d", Pos: at(9)},
	})
	text := fmt.Sprint(err)
	for _, want := range []string{
		`f:3:1: the descriptor "a" with the value "x" is there twice, first in line 2`,
		`f:6:1: the descriptor "a" is there twice, first in line 5`,
		`f:7:1: the descriptor "token" with the value "#`,
		`f:8:1: rule "d.b": limit 1: period is 0s`,
		`f:9:1: the domain "d" has a file already, f;`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the error lacks %q: %s", want, text)
		}
	}
	if _, _, err := nested.New(nil, policy.WithHashKey([]byte("short"))); err == nil {
		t.Error("a hash key that is too short is no error")
	}
}

func TestFlatten(t *testing.T) {
	for _, tt := range []struct {
		d    policy.Descriptor
		want string
	}{
		{d("a=1"), "[{domain x} {descriptor a} {a 1}]"},
		{d("a=1", "b=", "a=2"), "[{domain x} {descriptor a|b|a} {a 1} {b } {a:2 2}]"},
		{d("a=1", "a=2", "a=3"), "[{domain x} {descriptor a|a|a} {a 1} {a:2 2} {a:3 3}]"},
		{d("domain=1", "descriptor=2"), "[{domain x} {descriptor domain|descriptor} {domain:2 1} {descriptor:2 2}]"},
		{d("remote_address=192.0.2.1"), "[{domain x} {descriptor remote_address} {remote_address 192.0.2.1} {ip 192.0.2.1}]"},
		{d("remote_address=192.0.2.1", "ip=::1"), "[{domain x} {descriptor remote_address|ip} {remote_address 192.0.2.1} {ip ::1}]"},
		{d("a b=1", "a|b=2"), `[{domain x} {descriptor a b|a\|b} {a_b 1} {a_b:2 2}]`},
		{d("=1"), "[{domain x} {descriptor } {_ 1}]"},
		{d(strings.Repeat("n", 70)+"=1", strings.Repeat("n", 71)+"=2")[1:], "[{domain x} {descriptor " + strings.Repeat("n", 71) + "} {" + strings.Repeat("n", 64) + " 2}]"},
	} {
		if got := fmt.Sprint(nested.Flatten(nil, "x", tt.d)); got != tt.want {
			t.Errorf("%v becomes %s, want %s", tt.d, got, tt.want)
		}
	}
	many := make(policy.Descriptor, policy.MaxEntries)
	for i := range many {
		many[i].Name = strings.Repeat("n", 100)
	}
	seen := make(map[string]bool)
	for _, e := range nested.Flatten(nil, "x", many) {
		if seen[e.Name] || len(e.Name) > policy.MaxName {
			t.Errorf("the name %q", e.Name)
		}
		seen[e.Name] = true
	}
}

// TestRulesSayTheSame makes configurations at random, and holds what the rules
// say of each descriptor against what the tree says.
func TestRulesSayTheSame(t *testing.T) {
	seed := rand.New(rand.NewPCG(3, 4))
	keys, values := []string{"a", "b"}, []string{"", "x", "xy", "xyz", "y", "*", "x*", "xy*"}
	var nodes func(depth int) []nested.Node
	nodes = func(depth int) []nested.Node {
		var made []nested.Node
		taken := make(map[string]bool)
		for range seed.IntN(6) {
			n := nested.Node{Key: keys[seed.IntN(len(keys))], Value: values[seed.IntN(len(values))]}
			if taken[n.Key+"="+n.Value] {
				continue
			}
			taken[n.Key+"="+n.Value] = true
			n.Share = strings.HasSuffix(n.Value, "*") && seed.IntN(2) == 0
			n.Shadow = seed.IntN(4) == 0
			switch seed.IntN(6) {
			case 0:
			case 1:
				n.Limit = &nested.Limit{Unlimited: true}
			case 2:
				n.Limit, n.Shadow = limit(0), false
			default:
				n.Limit = limit(int64(1 + seed.IntN(9)))
			}
			if depth > 0 {
				n.Nodes = nodes(depth - 1)
			}
			made = append(made, n)
		}
		return made
	}
	found := make(map[string]int)
	for range 300 {
		domains := []nested.Domain{{Name: "d", Nodes: nodes(2)}, {Name: "e", Nodes: nodes(1)}}
		tree, _, err := nested.New(domains)
		if err != nil {
			t.Fatal(err)
		}
		facts, err := nested.Rules(domains)
		if err != nil {
			t.Fatal(err)
		}
		for _, lost := range facts.Lost {
			if !strings.Contains(lost.Text, "no descriptor arrives here") {
				t.Fatalf("lost: %v", lost)
			}
		}
		set, err := policy.New(facts.Rules, policy.WithAllowed(facts.Allow...), policy.WithDenied(facts.Deny...))
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			domain := []string{"d", "e", "f"}[seed.IntN(3)]
			var asked policy.Descriptor
			for range 1 + seed.IntN(3) {
				asked = append(asked, policy.Entry{Name: keys[seed.IntN(len(keys))], Value: []string{"x", "xy", "xyz", "xyzz", "y", "z", "*", "x*"}[seed.IntN(8)]})
			}
			want := "nothing"
			if leaf, key := tree.Find(domain, asked); leaf != nil {
				switch {
				case leaf.Unlimited:
					want = "allowed"
				case leaf.Denies():
					want = "denied"
				default:
					want = fmt.Sprintf("%v under %q, shadow %t", leaf.Rule, key, leaf.Shadow)
				}
			}
			outcome, err := set.Decide(nested.Flatten(nil, domain, asked), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := "nothing"
			switch {
			case outcome.Allowed != nil:
				got = "allowed"
			case outcome.Denied != nil:
				got = "denied"
			case len(outcome.Checks) == 1:
				c := &outcome.Checks[0]
				got = fmt.Sprintf("%v under %q, shadow %t", c.Rule, c.Key, c.Shadow)
			case len(outcome.Checks) > 1:
				got = fmt.Sprintf("%d rules", len(outcome.Checks))
			}
			if got != want {
				t.Fatalf("%s %v: the rules say %s, the tree %s\n%+v", domain, asked, got, want, domains)
			}
			word, _, _ := strings.Cut(got, " ")
			found[word]++
		}
	}
	for _, word := range []string{"nothing", "allowed", "denied", "d.a", "d.a.b", "d.a_x*"} {
		if found[word] == 0 {
			t.Errorf("none of the descriptors led to %s: %v", word, found)
		}
	}
}

func TestWhatRulesCannotSay(t *testing.T) {
	facts, err := nested.Rules([]nested.Domain{{Name: "d", Nodes: []nested.Node{
		{Key: "h-*", Limit: limit(1)},
		{Key: "h-a", Limit: limit(1)}, // never reached
		{Key: "a", Limit: &nested.Limit{Count: 1, Period: time.Minute, Replaces: []string{"x", "y"}}},
		{Key: "b", Quota: true, Limit: limit(1)},
		{Key: "c", Shadow: true, Limit: limit(0)},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var lost []string
	for _, m := range facts.Lost {
		lost = append(lost, m.Rule+": "+m.Text)
	}
	text := strings.Join(lost, "\n")
	for _, want := range []string{`d.h-*: the key "h-*" ends in a star`, "d.h-a: no descriptor arrives here", "d.a: replaces x, y", "d.b: quota_mode", "d.c: a limit of nothing"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not among what was lost: %s", want, text)
		}
	}
	if len(facts.Rules) != 2 || len(lost) != 5 {
		t.Errorf("%d rules, and %d lost", len(facts.Rules), len(lost))
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	tree, _ := mustNew(t, []nested.Node{{Key: "a", Value: "x", Nodes: []nested.Node{{Key: "b", Limit: limit(1)}}}})
	asked := d("a=x", "b=some value")
	if n := testing.AllocsPerRun(100, func() { tree.Find("d", asked) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
