package nested_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
	// Nobody can write what stands for the long key of another.
	_, one = tree.Find("d", d("user="+long, "user=x"))
	if _, two = tree.Find("d", d("a=one", "b="+one)); two == one || nested.JoinKey(set, d("user="+one)) == one {
		t.Errorf("a value that looks like a long key is counted under it: %q", two)
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
	}, policy.HashKey([]byte(strings.Repeat("k", 16))))
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
		{Name: "d", Pos: at(9), Nodes: []nested.Node{{Key: "b", Pos: policy.Position{File: "g", Line: 10, Column: 2}}, {Key: "c", Pos: at(11)}}},
	})
	text := fmt.Sprint(err)
	for _, want := range []string{
		`f:3:1: the descriptor "a" with the value "x" is there twice, first in line 2`,
		`f:6:1: the descriptor "a" is there twice, first in line 5`,
		`f:7:1: the descriptor "token" with the value "#`,
		`f:8:1: rule "d.b": limit 1: period is 0s`,
		`g:10:2: the descriptor "b" is there twice, first at f:8; keep one`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the error lacks %q: %s", want, text)
		}
	}
	if _, _, err := nested.New(nil, policy.HashKey([]byte("short"))); err == nil {
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
	names := []string{"", "", "n1", "n2", "n3"}
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
				n.Limit = limit(0)
			default:
				n.Limit, n.Quota = limit(int64(1+seed.IntN(9))), seed.IntN(6) == 0
			}
			if n.Limit != nil {
				n.Limit.Name = names[seed.IntN(len(names))]
				if other := names[seed.IntN(len(names))]; other != n.Limit.Name && other != "" {
					n.Limit.Replaces = []string{other, "of nobody"}
				}
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
			if !strings.Contains(lost.Text, "no descriptor arrives here") && !strings.Contains(lost.Text, "a limit of zero in shadow_mode") {
				t.Fatalf("lost: %v", lost)
			}
		}
		set, err := policy.New(facts.Rules, policy.Allowed(facts.Allow...), policy.Denied(facts.Deny...))
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			domain := []string{"d", "e", "f"}[seed.IntN(3)]
			var asked []policy.Descriptor
			for range 1 + seed.IntN(3) {
				var d policy.Descriptor
				for range 1 + seed.IntN(3) {
					d = append(d, policy.Entry{Name: keys[seed.IntN(len(keys))], Value: []string{"x", "xy", "xyz", "xyzz", "y", "z", "*", "x*"}[seed.IntN(8)]})
				}
				asked = append(asked, d)
			}
			want, got := byTree(tree, domain, asked), byRules(t, set, domain, asked)
			if !slices.Equal(got, want) {
				t.Fatalf("%s %v: the rules say %q, the tree %q\n%+v", domain, asked, got, want, domains)
			}
			for _, outcome := range got {
				word, _, _ := strings.Cut(outcome, " ")
				found[word]++
			}
		}
	}
	for _, word := range []string{"nothing", "passes", "denied", "replaced", "d.a", "d.a.b", "d.a_x*"} {
		if found[word] == 0 {
			t.Errorf("none of the descriptors led to %s: %v", word, found)
		}
	}
}

// byTree is what the tree says of each descriptor of a request.
func byTree(tree *nested.Tree, domain string, request []policy.Descriptor) (all []string) {
	replaced := make(map[string]bool)
	for _, d := range request {
		if leaf, _ := tree.Find(domain, d); leaf != nil {
			for _, name := range leaf.Replaces {
				replaced[name] = true
			}
		}
	}
	for _, d := range request {
		leaf, key := tree.Find(domain, d)
		switch {
		case leaf == nil:
			all = append(all, "nothing")
		case leaf.Unlimited, leaf.Denies() && leaf.Shadow && len(leaf.Replaces) > 0:
			all = append(all, "passes")
		case leaf.Denies() && leaf.Shadow:
			all = append(all, "nothing")
		case replaced[leaf.Name]:
			all = append(all, "replaced")
		case leaf.Denies():
			all = append(all, "denied")
		default:
			all = append(all, fmt.Sprintf("%v under %q, shadow %t, quota %t", leaf.Rule, key, leaf.Shadow || leaf.Quota, leaf.Quota && !leaf.Shadow))
		}
	}
	return all
}

// byRules is what the rules say of each descriptor of a request.
func byRules(t *testing.T, set *policy.Set, domain string, request []policy.Descriptor) (all []string) {
	t.Helper()
	outcomes := make([]policy.Outcome, len(request))
	var checks []headgate.Check
	var entries []*policy.ListEntry
	for i, d := range request {
		var err error
		if outcomes[i], err = set.Bind(nested.Flatten(nil, domain, d), 1, nil); err != nil {
			t.Fatal(err)
		}
		checks = append(checks, outcomes[i].Checks...)
		for _, e := range []*policy.ListEntry{outcomes[i].Allowed, outcomes[i].Denied} {
			if e != nil {
				entries = append(entries, e)
			}
		}
	}
	for i := range outcomes {
		switch o := &outcomes[i]; {
		case o.Allowed != nil:
			all = append(all, "passes")
		case o.Denied != nil && set.ReplacedEntry(o.Denied, checks, entries...):
			all = append(all, "replaced")
		case o.Denied != nil:
			all = append(all, "denied")
		case len(o.Checks) == 0:
			all = append(all, "nothing")
		case len(o.Checks) > 1:
			all = append(all, fmt.Sprintf("%d rules", len(o.Checks)))
		case set.Replaced(&o.Checks[0], checks, entries...):
			all = append(all, "replaced")
		default:
			c := &o.Checks[0]
			all = append(all, fmt.Sprintf("%v under %q, shadow %t, quota %t", c.Rule, c.Key, c.Shadow, set.Rule(c.Rule.Name()).Mode == policy.ModeQuota))
		}
	}
	return all
}

func TestWhatRulesCannotSay(t *testing.T) {
	zero := func(name string, replaces ...string) *nested.Limit {
		return &nested.Limit{Name: name, Replaces: replaces, Period: time.Minute}
	}
	many := make([]nested.Node, policy.MaxReplaces+1)
	for i := range many {
		many[i] = nested.Node{Key: "many", Value: fmt.Sprint(i), Limit: &nested.Limit{Name: "many", Count: 1, Period: time.Minute}}
	}
	facts, err := nested.Rules([]nested.Domain{{Name: "d", Nodes: append([]nested.Node{
		{Key: "h-*", Limit: limit(1)},
		{Key: "h-a", Limit: limit(1)}, // never reached
		{Key: "a", Limit: &nested.Limit{Count: 1, Period: time.Minute, Replaces: []string{"x", "nothing", "nobody", "x", "free"}}},
		{Key: "b", Quota: true, Limit: limit(1)},
		{Key: "c", Shadow: true, Limit: zero("")},
		{Key: "c2", Quota: true, Limit: zero("")},
		{Key: "c3", Quota: true, Limit: zero("", "x")},
		{Key: "e", Limit: &nested.Limit{Name: "free", Unlimited: true, Replaces: []string{"x", "y"}}},
		{Key: "f", Limit: zero("nothing", "x")},
		{Key: "g", Limit: &nested.Limit{Name: "x", Count: 1, Period: time.Minute, Replaces: []string{"many"}}},
		{Key: "i", Detailed: true, Limit: limit(1)},
		{Key: "j", Value: "x*z", Limit: limit(1)},
		{Key: "j", Value: "x*", Limit: limit(1)}, // but for what the one before takes
		{Key: "j", Value: "y*", Limit: limit(1)},
		{Key: "j", Value: "xz", Limit: limit(1)},
	}, many...)}})
	if err != nil {
		t.Fatal(err)
	}
	var lost []string
	for _, m := range facts.Lost {
		lost = append(lost, m.Rule+": "+m.Text)
	}
	wanted := []string{
		`d.h-*: the limit is left out: the key "h-*" has a star`, "d.h-a: the limit is left out: no descriptor arrives here",
		"d.c: a limit of zero in shadow_mode is left out", "d.c2: a limit of zero in quota_mode is left out",
		"d.c3: a limit of zero in quota_mode is written as an entry of the allow list", "d.i: detailed_metric",
		`d.j_x*z: the limit is left out: the value "x*z" has a star before its end`, "d.j_x*: the limit is left out: values with a star before their end lead elsewhere",
		"d.g: replaces 1001 limits, and a rule may replace 1000",
	}
	for _, want := range wanted {
		if !slices.ContainsFunc(lost, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("%q is not among what was lost: %s", want, strings.Join(lost, "\n"))
		}
	}
	if len(lost) != len(wanted) {
		t.Errorf("%d lost: %s", len(lost), strings.Join(lost, "\n"))
	}
	replaced := make(map[string]string)
	for _, r := range facts.Rules[:4] {
		replaced[r.Name] = strings.Join(r.Replaces[:min(2, len(r.Replaces))], " ")
	}
	for _, e := range slices.Concat(facts.Allow, facts.Deny) {
		replaced[e.Name] = strings.Join(e.Replaces, " ")
	}
	want := map[string]string{"d.a": "d.g d.f", "d.b": "", "d.g": "d.many_0 d.many_1", "d.i": "", "d.c3": "d.g", "d.e": "d.g", "d.f": "d.g"}
	if !maps.Equal(replaced, want) {
		t.Errorf("they replace %v, want %v", replaced, want)
	}
	if facts.Rules[1].Mode != policy.ModeQuota {
		t.Errorf("the mode is %v", facts.Rules[1].Mode)
	}
	if _, err := policy.New(facts.Rules, policy.Allowed(facts.Allow...), policy.Denied(facts.Deny...)); err != nil {
		t.Error(err)
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	tree, _ := mustNew(t, []nested.Node{{Key: "a", Value: "x", Nodes: []nested.Node{{Key: "b", Limit: limit(1)}}}})
	asked := d("a=x", "b=some value")
	if n := testing.AllocsPerRun(100, func() { tree.Find("d", asked) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestDecide: what one descriptor comes to, for those who do not speak Envoy's
// protocol.
func TestDecide(t *testing.T) {
	tree, _ := mustNew(t, []nested.Node{
		{Key: "user", Limit: limit(5), Nodes: []nested.Node{{Key: "path", Value: "/x", Shadow: true, Limit: limit(1)}}},
		{Key: "user", Value: "free", Limit: &nested.Limit{Unlimited: true}},
		{Key: "user", Value: "out", Limit: limit(0)},
		{Key: "user", Value: "seen", Shadow: true, Limit: limit(0)},
	})
	before := []headgate.Check{{Key: "before"}}
	for _, tt := range []struct {
		d    policy.Descriptor
		cost int64
		want string
	}{
		{d("domain=d", "user=a"), 3, `rule "d.user" under "a" at 3, shadow false`},
		{d("user=a", "domain=d"), 0, `rule "d.user" under "a" at 1, shadow false`},
		{d("domain=d", "user=a", "path=/x"), 1, `rule "d.user.path_/x" under "a" at 1, shadow true`},
		{d("domain=d", "path=/x", "user=a"), 1, "nothing"},
		{d("domain=e", "user=a"), 1, "nothing"},
		{d("domain=d", "domain=d", "user=a"), 1, "nothing"},
		{d("domain=d", "user=free"), 1, "allowed by d.user_free"},
		{d("domain=d", "user=out"), 1, "denied by d.user_out"},
		{d("domain=d", "user=seen"), 1, "nothing"},
		{d("user=a"), 1, `it has no entry "domain"`},
		{d("domain=d", "user=a"), -1, "the cost is -1"},
	} {
		out, err := tree.Decide(tt.d, tt.cost, before)
		got := "nothing"
		switch {
		case err != nil:
			got = err.Error()
		case out.Denied != nil:
			got = "denied by " + out.Denied.Name
		case out.Allowed != nil:
			got = "allowed by " + out.Allowed.Name
		case len(out.Checks) == 2:
			c := &out.Checks[1]
			got = fmt.Sprintf("rule %q under %q at %d, shadow %t", c.Rule.Name(), c.Key, c.Cost, c.Shadow)
		}
		if !strings.Contains(got, tt.want) || out.Checks[0].Key != "before" {
			t.Errorf("%v: %s, want %s", tt.d, got, tt.want)
		}
	}
}

// TestMeasure: the names that envoyproxy/ratelimit gives its statistics, but for
// secrets and what is too long.
func TestMeasure(t *testing.T) {
	tree, set := mustNew(t, []nested.Node{
		{Key: "plain", Limit: limit(1)},
		{Key: "user", Detailed: true, Limit: limit(1), Nodes: []nested.Node{
			{Key: "path", Value: "/files*", Share: true, Detailed: true, Limit: limit(1)},
			{Key: "path", Value: "/x*", Detailed: true, Limit: limit(1)},
			{Key: "path", ValueToMetric: true, Limit: limit(1)},
		}},
		{Key: "host", ValueToMetric: true, Nodes: []nested.Node{{Key: "user", Limit: limit(1), Nodes: []nested.Node{{Key: "path", Value: "/a*", Limit: limit(1)}, {Key: "path", Value: "/b", Limit: limit(1)}}}}},
		{Key: "star", Value: "s*", ValueToMetric: true, Limit: limit(1)},
		{Key: "star", Value: "t*", Share: true, ValueToMetric: true, Limit: limit(1)},
		{Key: "h-*", ValueToMetric: true, Limit: limit(1)},
		{Key: "g-*", Share: true, Detailed: true, Limit: limit(1)},
		{Key: "api_key", Detailed: true, Limit: limit(1)},
	})
	for _, tt := range []struct {
		d    policy.Descriptor
		want string
	}{
		{d("plain=x"), ""},
		{d("user=a"), "d.user_a"},
		{d("user="), "d.user"},
		{d("user=a", "path=/files/1"), "d.user_a.path_/files*"},
		{d("user=a", "path=/x/1"), "d.user_a.path_/x/1"},
		{d("user=a", "path=/y"), "d.user.path_/y"},
		{d("host=h", "user=a"), "d.host_h.user"},
		{d("host=h", "user=a", "path=/a/1"), "d.host_h.user.path_/a*"},
		{d("host=h", "user=a", "path=/b"), "d.host_h.user.path_/b"},
		{d("star=sun"), "d.star_sun"},
		{d("star=tun"), "d.star_t*"},
		{d("h-a=x"), "d.h-a_x"},
		{d("g-a=x"), "d.g-*"},
		{d("api_key=geheim"), "d.api_key_#" + set.Hash("api_key", "geheim")},
		{d("user=\xff\xfe"), "d.user__"},
	} {
		leaf, _ := tree.Find("d", tt.d)
		got := ""
		if leaf.Measured {
			got = tree.Measure("d", tt.d)
		}
		if got != tt.want {
			t.Errorf("%v is measured as %q, want %q", tt.d, got, tt.want)
		}
	}
	one, two := tree.Measure("d", d("user="+strings.Repeat("long", 100))), tree.Measure("d", d("user="+strings.Repeat("long", 101)))
	if len(one) != 256 || one == two {
		t.Errorf("long names: %q and %q", one, two)
	}
}
