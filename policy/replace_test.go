package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
)

// replacing has rules for one, two and three, of which each replaces the next, and
// one for everybody that none replaces.
func replacing(t *testing.T) *policy.Set {
	t.Helper()
	var rules []policy.Rule
	for _, r := range [][]string{{"one", "two"}, {"two", "three"}, {"three"}} {
		rules = append(rules, policy.Rule{
			Limits: headgate.MustRule(r[0], headgate.PerMinute(9)), Match: []policy.Condition{policy.Present(r[0])}, Replaces: r[1:],
		})
	}
	rules = append(rules, policy.Rule{Limits: headgate.MustRule("all", headgate.PerMinute(9))})
	set, err := policy.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestReplaces(t *testing.T) {
	t.Parallel()
	set := replacing(t)
	for _, tt := range []struct{ has, binds string }{
		{"", "all"},
		{"one", "one all"},
		{"two", "two all"},
		{"one two", "one all"},
		{"one three", "one three all"},
		{"two three", "two all"},
		// What is replaced still replaces.
		{"one two three", "one all"},
	} {
		var d policy.Descriptor
		for _, name := range strings.Fields(tt.has) {
			d = append(d, policy.Entry{Name: name, Value: "x"})
		}
		before := headgate.Check{Rule: headgate.MustRule("two", headgate.PerMinute(1)), Key: "before"}
		out, err := set.Decide(d, 1, []headgate.Check{before})
		if err != nil {
			t.Fatal(err)
		}
		var binds []string
		for _, c := range out.Checks[1:] {
			binds = append(binds, c.Rule.Name())
		}
		if got := strings.Join(binds, " "); got != tt.binds || out.Checks[0].Key != "before" {
			t.Errorf("with %q %s bind, want %s", tt.has, got, tt.binds)
		}
		e := explain.Request(set, d, 1, nil)
		var explained []string
		for _, c := range e.Checks() {
			explained = append(explained, c.Rule.Name())
		}
		if !slices.Equal(explained, binds) {
			t.Errorf("with %q %v bind, and explain says %v", tt.has, binds, explained)
		}
		for i := range e.Rules {
			if r := &e.Rules[i]; !r.Binds && strings.Contains(tt.has, r.Rule) && !strings.Contains(r.Why, "binds the request and replaces it") {
				t.Errorf("with %q: %s does not bind, because %s", tt.has, r.Rule, r.Why)
			}
		}
	}
}

func TestReplacesOfSeveralDescriptors(t *testing.T) {
	t.Parallel()
	set := replacing(t)
	var checks []headgate.Check
	for _, name := range []string{"one", "two", "three"} {
		out, err := set.Bind(policy.Descriptor{{Name: name, Value: "x"}}, 1, checks)
		if err != nil {
			t.Fatal(err)
		}
		checks = out.Checks
	}
	var binds []string
	for i := range checks {
		if !set.Replaced(&checks[i], checks) {
			binds = append(binds, checks[i].Rule.Name())
		}
	}
	if !slices.Equal(binds, []string{"one", "all", "all", "all"}) {
		t.Errorf("%v bind", binds)
	}
}

func TestMistakesInReplaces(t *testing.T) {
	t.Parallel()
	limits := func(name string) *headgate.Rule { return headgate.MustRule(name, headgate.PerMinute(9)) }
	_, err := policy.New([]policy.Rule{
		{Limits: limits("a"), Replaces: []string{"a", "nobody", "b", "b", "direct"}},
		{Limits: limits("b")},
		{Limits: limits("direct"), Direct: true, Replaces: []string{"b"}},
		{Limits: limits("many"), Replaces: make([]string, policy.MaxReplaces+1)},
	})
	if err == nil {
		t.Fatal("no mistake was found")
	}
	for _, want := range []string{
		"would replace itself", `there is no rule "nobody" to replace`, `the rule "b" is named twice`, `the rule "direct" is direct`,
		"a direct rule replaces nothing", "there are 1001 rules to replace, must be at most 1000",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

// TestListsReplace: entries of lists replace rules and entries of the deny list, and
// rules replace the latter, where a request has several descriptors.
func TestListsReplace(t *testing.T) {
	t.Parallel()
	entry := func(name string, replaces ...string) policy.ListEntry {
		return policy.ListEntry{Name: name, Match: []policy.Condition{policy.Present(name)}, Replaces: replaces}
	}
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("one", headgate.PerMinute(9)), Match: []policy.Condition{policy.Present("one")}, Replaces: []string{"bad"}},
		{Limits: headgate.MustRule("two", headgate.PerMinute(9)), Match: []policy.Condition{policy.Present("two")}},
	}, policy.Denied(entry("bad", "two"), entry("worse")), policy.Allowed(entry("free", "two", "worse")))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ has, left string }{
		{"one two", "one two"},
		{"one bad", "one"},
		{"two bad", "bad"},
		{"one two bad", "one"}, // What is replaced still replaces.
		{"two free", "free"},
		{"worse free", "free"},
		{"worse one", "worse one"},
		{"bad free", "bad free"},
	} {
		var checks []headgate.Check
		var entries []*policy.ListEntry
		names := strings.Fields(tt.has)
		for _, name := range names {
			out, err := set.Bind(policy.Descriptor{{Name: name, Value: "x"}}, 1, checks)
			if err != nil {
				t.Fatal(err)
			}
			checks = out.Checks
			for _, e := range []*policy.ListEntry{out.Denied, out.Allowed} {
				if e != nil {
					entries = append(entries, e)
				}
			}
		}
		left := make(map[string]bool)
		for i := range checks {
			left[checks[i].Rule.Name()] = !set.Replaced(&checks[i], checks, entries...)
		}
		for _, e := range entries {
			left[e.Name] = !set.ReplacedEntry(e, checks, entries...)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !left[name] })
		if got := strings.Join(names, " "); got != tt.left {
			t.Errorf("of %q %q is left, want %q", tt.has, got, tt.left)
		}
	}

	_, err = policy.New([]policy.Rule{{Limits: headgate.MustRule("one", headgate.PerMinute(9)), Replaces: []string{"free"}}},
		policy.Denied(entry("bad", "bad", "nobody")), policy.Allowed(entry("free", "one", "one")))
	for _, want := range []string{
		`"free" is an entry of the allow list, which limits nothing`, "the entry would replace itself",
		`there is no rule "nobody" to replace, nor such an entry of the deny list`, `"one" is named twice`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}
